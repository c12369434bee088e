package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oarlock/oarlock/node"
)

// process is one worker, seen from the parent.
type process struct {
	name, addr string
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	gone       chan struct{} // closed when it has ended and all it said was read
	alive      bool          // was started, and its end was not heard of
	ending     bool          // its end is our wish
}

// owner is the last owner heard of.
type owner struct {
	by    *process
	token node.Token
	at    time.Time
}

// procs are the workers and what they said. It is used by one goroutine.
type procs struct {
	binary, dir string
	verbose     bool
	all         []*process
	reports     chan report
	done        chan struct{} // closed when nobody listens any more

	owners map[int]owner // by shard
	ready  map[*process]bool
	shut   report // of the last Shutdown
}

func newProcs(binary, dir string, verbose bool) *procs {
	p := &procs{
		binary: binary, dir: dir, verbose: verbose, reports: make(chan report, 64), done: make(chan struct{}),
		owners: map[int]owner{}, ready: map[*process]bool{},
	}
	for i := range 3 {
		p.all = append(p.all, &process{name: fmt.Sprintf("node-%d", i+1)})
	}
	return p
}

// start starts a worker and waits until it listens.
func (p *procs) start(ctx context.Context, w *process) error {
	var join []string
	for _, o := range p.all {
		if o != w && o.addr != "" {
			join = append(join, o.addr)
		}
	}
	log, err := os.OpenFile(filepath.Join(p.dir, w.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	w.cmd = exec.Command(p.binary, "-worker", w.name, "-dir", filepath.Join(p.dir, w.name), "-join", strings.Join(join, ","), fmt.Sprintf("-v=%v", p.verbose))
	w.cmd.Stderr = log
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	w.gone, w.alive, w.ending, w.addr = make(chan struct{}), true, false, ""
	go p.listen(w, w.cmd, stdout, w.gone) // stops when the worker ends, which close waits for
	return p.until(ctx, w.name+" to listen", func() bool { return w.addr != "" })
}

// listen passes on what one life of a worker says.
func (p *procs) listen(w *process, cmd *exec.Cmd, stdout io.Reader, gone chan<- struct{}) {
	defer close(gone)
	d := json.NewDecoder(stdout)
	for {
		var r report
		err := d.Decode(&r)
		if err != nil {
			r = report{Kind: hasEnded, Err: fmt.Sprint(cmd.Wait())}
		}
		r.from, r.at = w, time.Now()
		select {
		case p.reports <- r:
		case <-p.done:
		}
		if err != nil {
			return
		}
	}
}

// until hears the workers until cond holds.
func (p *procs) until(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !cond() {
		select {
		case r := <-p.reports:
			if err := p.hear(r); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

func (p *procs) hear(r report) error {
	if r.Err != "" && r.Kind != hasEnded {
		return fmt.Errorf("%s: %s: %s", r.from.name, r.Kind, r.Err)
	}
	switch r.Kind {
	case isOpen:
		r.from.addr = r.Addr
	case isReady:
		p.ready[r.from] = true
	case owns:
		if p.owners[r.Shard].token < r.Token {
			p.owners[r.Shard] = owner{by: r.from, token: r.Token, at: r.at}
		}
	case isShutDown:
		p.shut = r
	case hasEnded:
		r.from.alive = false
		if !r.from.ending {
			return fmt.Errorf("%s ended by itself: %s; its log is in %s", r.from.name, r.Err, p.dir)
		}
	}
	return nil
}

// restart starts a worker again after its end.
func (p *procs) restart(ctx context.Context, w *process) error {
	if err := p.until(ctx, w.name+" to end", func() bool { return !w.alive }); err != nil {
		return err
	}
	return p.start(ctx, w)
}

func (p *procs) tell(w *process, do string) error {
	_, err := fmt.Fprintln(w.stdin, do)
	return err
}

// settle waits until all are ready and each owns at least least shards.
func (p *procs) settle(ctx context.Context, least int) error {
	clear(p.ready)
	for _, w := range p.all {
		if err := p.tell(w, doAwait); err != nil {
			return err
		}
	}
	return p.until(ctx, "all to be ready and to own their part", func() bool {
		for _, w := range p.all {
			if !p.ready[w] || len(p.owned(w)) < least {
				return false
			}
		}
		return true
	})
}

// owned are the shards of a worker, as they are now.
func (p *procs) owned(w *process) map[int]owner {
	owned := map[int]owner{}
	for s, o := range p.owners {
		if o.by == w {
			owned[s] = o
		}
	}
	return owned
}

// close ends all workers and waits until they are gone.
func (p *procs) close() error {
	close(p.done)
	var errs []error
	var ending sync.WaitGroup
	for _, w := range p.all {
		if w.cmd == nil || w.cmd.Process == nil {
			continue
		}
		if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		ending.Go(func() { <-w.gone }) // stops when the worker is gone
	}
	ending.Wait()
	return errors.Join(errs...)
}
