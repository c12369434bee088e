//go:build unix

// Package procs starts the processes of an example's story, talks to them over their stdin and stdout, one JSON object a line, and
// ends them whatever happens. It knows nothing of what they say.
package procs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A Process is one life of a process, seen from its parent. Its methods belong to one goroutine.
type Process struct {
	name  string
	log   string // the file that its stderr is added to
	cmd   *exec.Cmd
	stdin io.WriteCloser
	gone  chan struct{} // closed when it has ended and all it said was heard
}

// Start starts a process. What it says is given to hear, one object after the other, until it ends or says what is no T; then ended is told
// why it ended. Both are called by one goroutine, which End waits for. The kernel ends the process with the thread that started
// it: lock that, if it may end before.
func Start[T any](name, log, binary string, args []string, hear func(T), ended func(error)) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &Process{name: name, log: log, cmd: exec.Command(binary, args...), gone: make(chan struct{})}
	p.cmd.Stderr, p.cmd.SysProcAttr = file, attr()
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
	go func() { // stops when the process ends, which End waits for
		defer close(p.gone)
		for d := json.NewDecoder(stdout); ; {
			var v T
			if err := d.Decode(&v); err != nil {
				break
			}
			hear(v)
		}
		ended(p.cmd.Wait())
	}()
	return p, nil
}

// Pid is the process's id. It is no other process's before Gone.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended and ended has returned.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Tell gives the process an order, also when it is stopped.
func (p *Process) Tell(order any) error {
	if err := json.NewEncoder(p.stdin).Encode(order); err != nil {
		return fmt.Errorf("tell %s: %w", p.name, err)
	}
	return nil
}

// Signal sends a signal to this process alone.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// Pause stops the process and waits until it has stopped. On a busy machine that takes a while, and should the parent be killed in
// between, the kernel would see no stopped process to end.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(p.Pid(), &status, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait for %s to stop: %w", p.name, err)
		case !status.Stopped():
			return fmt.Errorf("%s ended: %s", p.name, p.LastWords())
		default:
			return nil
		}
	}
}

// LastWords are the last lines that the process wrote to its log.
func (p *Process) LastWords() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// End asks the process to end by closing its stdin, kills it after a while, also when it is stopped, and waits until it is gone.
func (p *Process) End(patience time.Duration) {
	_ = p.stdin.Close()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.gone:
		return
	case <-t.C:
	}
	_ = p.cmd.Process.Kill() // its error says that the process has ended
	<-p.gone
}
