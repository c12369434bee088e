//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stage is where the processes of the story run.
type stage struct {
	binary, dir string
	procs       []*process
}

// A process is one process of the story, seen from its parent.
type process struct {
	name    string
	addr    string
	log     string // the file that it writes its log to
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	reports chan report // closed when it has ended
}

// start starts a process that joins the cluster at join, or is the cluster, and waits until it is ready.
func (s *stage) start(ctx context.Context, name, join string) (*process, error) {
	p := &process{name: name, log: filepath.Join(s.dir, name+".log"), reports: make(chan report, 1)}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(s.binary, "-process", name, "-dir", filepath.Join(s.dir, name), "-join", join)
	p.cmd.Stderr = log
	// A group of its own: an interrupt on the terminal reaches the parent alone, which ends all. And should the parent be killed,
	// the kernel ends a process of such a group that is stopped and could not see its stdin end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.procs = append(s.procs, p)
	go p.listen(stdout) // stops when the process ends, which endAll waits for
	r, err := p.hear(ctx)
	p.addr = r.Addr
	return p, err
}

// listen passes on what the process says. It does not wait for who hears it: there is one report for each order.
func (p *process) listen(stdout io.Reader) {
	defer close(p.reports)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			r.Err = fmt.Sprintf("said %q: %v", lines.Text(), err)
		}
		p.reports <- r
	}
	_ = p.cmd.Wait() // its log says why it ended
}

// tell gives the process an order, also when it is stopped.
func (p *process) tell(o order) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("tell %s to %s: %w", p.name, o.Do, err)
	}
	return nil
}

// hear waits for the report on an order.
func (p *process) hear(ctx context.Context) (report, error) {
	select {
	case r, ok := <-p.reports:
		switch {
		case !ok:
			return r, fmt.Errorf("%s ended: %s", p.name, p.lastWords())
		case r.Err != "":
			return r, fmt.Errorf("%s: %w", p.name, errors.New(r.Err))
		}
		return r, nil
	case <-ctx.Done():
		return report{}, fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
}

func (p *process) ask(ctx context.Context, o order) (report, error) {
	if err := p.tell(o); err != nil {
		return report{}, err
	}
	return p.hear(ctx)
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// pause stops the process and waits until it has stopped. On a busy machine that takes a while, and should the parent be killed in
// between, the kernel would see no stopped process to end.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait for %s to stop: %w", p.name, err)
		case !status.Stopped():
			return fmt.Errorf("%s ended: %s", p.name, p.lastWords())
		default:
			return nil
		}
	}
}

func (p *process) lastWords() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// endAll asks all processes to end, kills those that do not, also stopped ones, and waits until they are gone.
func (s *stage) endAll() {
	for _, p := range s.procs {
		_ = p.stdin.Close()
	}
	patience := time.AfterFunc(2*time.Second, func() {
		for _, p := range s.procs {
			_ = p.cmd.Process.Kill() // its error says that the process has ended
		}
	})
	defer patience.Stop()
	for _, p := range s.procs {
		for range p.reports { // until it is closed
		}
	}
}
