//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// app is one of the three processes.
type app struct {
	*procs.Process
	name, addr string
	alive      bool
	doomed     bool // its end is our wish
}

// heard is what an app said; with over, its last.
type heard struct {
	report
	from *app
	over bool
	err  error
}

// start starts an app, tells it where the others are, and waits until it listens.
func (s *story) start(ctx context.Context, a *app) (err error) {
	var join []string
	for _, o := range s.apps {
		if o != a && o.addr != "" {
			join = append(join, o.addr)
		}
	}
	a.addr = ""
	args := []string{"-process", a.name, "-dir", filepath.Join(s.dir, a.name), "-join", strings.Join(join, ","), "-bills", filepath.Join(s.dir, "bills"),
		"-first", fmt.Sprint(s.first.Unix()), "-dates", fmt.Sprint(s.audit.dates)}
	pass := func(h heard) {
		select {
		case s.heard <- h:
		case <-s.closed:
		}
	}
	a.Process, err = procs.Start(a.name, filepath.Join(s.dir, a.name+".log"), s.binary, args,
		func(r report) { pass(heard{report: r, from: a}) }, func(err error) { pass(heard{from: a, over: true, err: err}) })
	if err != nil {
		return err
	}
	a.alive, a.doomed = true, false
	if err := s.until(ctx, a.name+" to listen", func(heard) bool { return a.addr != "" }); err != nil {
		return err
	}
	s.print("%s runs as process %d and listens on %s", a.name, a.Pid(), a.addr)
	return nil
}

// until listens until one of the things heard makes cond true.
func (s *story) until(ctx context.Context, what string, cond func(heard) bool) error {
	for {
		select {
		case h := <-s.heard:
			if h.Kind == isOpen {
				h.from.addr = h.Addr
			}
			if h.over {
				h.from.alive = false
				if !h.from.doomed {
					return fmt.Errorf("%s ended: %w\n%s", h.from.name, h.err, h.from.LastWords())
				}
			}
			s.audit.hear(s.out, h)
			if cond(h) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// end ends all apps and waits until they are gone.
func (s *story) end() {
	close(s.closed)
	var ending sync.WaitGroup
	for _, a := range s.apps {
		if a.Process != nil {
			ending.Go(func() { a.End(4 * time.Second) }) // stops when the process is gone
		}
	}
	ending.Wait()
}
