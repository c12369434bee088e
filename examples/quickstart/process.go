//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A process is one process of the story, seen from its parent. It may be killed and started again on its directory.
type process struct {
	name, dir string
	addr      string // where its node listened last

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	gone   chan struct{} // closed when it has ended and all it said was read
	alive  bool          // it was started, and its end was not heard of
	doomed bool          // its end is our wish
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// start runs the process with the given arguments. What it says goes to reports until that is given up by closing done.
func (p *process) start(binary string, args []string, reports chan<- report, done <-chan struct{}) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, append([]string{"-process", p.name, "-dir", p.dir}, args...)...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = childAttr()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.gone, p.alive, p.doomed = make(chan struct{}), true, false
	go p.listen(p.cmd, stdout, p.gone, reports, done) // stops when the process ends, which end waits for
	return nil
}

// listen passes on what one life of the process says, and last that it ended.
func (p *process) listen(cmd *exec.Cmd, stdout io.Reader, gone chan<- struct{}, reports chan<- report, done <-chan struct{}) {
	defer close(gone)
	pass := func(r report) {
		r.from = p
		select {
		case reports <- r:
		case <-done:
		}
	}
	d := json.NewDecoder(stdout)
	for {
		var r report
		if d.Decode(&r) != nil {
			break
		}
		pass(r)
	}
	err := cmd.Wait()
	pass(report{Kind: hasEnded, Err: fmt.Sprint(err)})
}

// tell gives the process an order.
func (p *process) tell(o order) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("tell %s to %s: %w", p.name, o.Do, err)
	}
	return nil
}

// signal sends a signal to this process alone. It cannot hit another: the pid is not free before the process was waited for.
func (p *process) signal(s os.Signal) error {
	if s == os.Kill {
		p.doomed = true
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// end asks the process to end, kills it after a while, also when it is stopped, and waits until it is gone.
func (p *process) end(patience time.Duration) {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	p.doomed = true
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

func (p *process) logFile() string {
	return filepath.Join(filepath.Dir(p.dir), p.name+".log")
}

// logTail is the end of what the process wrote to stderr.
func (p *process) logTail() string {
	b, err := os.ReadFile(p.logFile())
	if err != nil || len(b) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
