//go:build unix

package procs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A Cast is the processes of a story, all of one program, and one queue of what they say: objects of type R. Its methods, and those of
// its members, belong to one goroutine, and Next is the only place where anything is heard, so a story needs no locks.
type Cast[R any] struct {
	Members []*Member

	binary, dir string
	heard       chan Heard[R]
	closed      chan struct{} // closed when nobody listens any more
}

// A Member is a process of a Cast. It may be killed, and started again in its directory.
type Member struct {
	*Process // its last life, nil before the first

	Name  string
	Addr  string // where it listens; set by the story once it says so, for those that are started after it
	Alive bool   // it was started, and its end was not heard of

	doomed bool // its end is our wish
}

// Heard is what a member said; with Over, that it has ended, which is the last.
type Heard[R any] struct {
	From   *Member
	Report R
	Over   bool

	err error // with Over: why it ended
}

// NewCast returns a cast whose processes will run the program binary in directories, and with logs, inside dir.
func NewCast[R any](binary, dir string, names ...string) *Cast[R] {
	c := &Cast[R]{binary: binary, dir: dir, heard: make(chan Heard[R], 64), closed: make(chan struct{})}
	for _, name := range names {
		c.Members = append(c.Members, &Member{Name: name})
	}
	return c
}

// Start starts a member with the arguments -process, its name; -dir, its directory; -join, the addresses of the others, separated by commas; and args.
func (c *Cast[R]) Start(m *Member, args ...string) (err error) {
	var join []string
	for _, o := range c.Members {
		if o != m && o.Addr != "" {
			join = append(join, o.Addr)
		}
	}
	m.Addr = ""
	args = append([]string{"-process", m.Name, "-dir", filepath.Join(c.dir, m.Name), "-join", strings.Join(join, ",")}, args...)
	pass := func(h Heard[R]) {
		select {
		case c.heard <- h:
		case <-c.closed:
		}
	}
	m.Process, err = Start(m.Name, filepath.Join(c.dir, m.Name+".log"), c.binary, args,
		func(r R) { pass(Heard[R]{From: m, Report: r}) }, func(err error) { pass(Heard[R]{From: m, Over: true, err: err}) })
	m.Alive, m.doomed = err == nil, false
	return err
}

// Kill kills the member. Its end is heard of later, and is no error.
func (m *Member) Kill() error {
	m.doomed = true
	return m.Signal(os.Kill)
}

// Next returns what is said next. The error is that of ctx, or says that a member has ended which was not killed by Kill.
func (c *Cast[R]) Next(ctx context.Context) (Heard[R], error) {
	select {
	case h := <-c.heard:
		if h.Over {
			h.From.Alive = false
			if !h.From.doomed {
				return h, fmt.Errorf("%s ended: %w\n%s", h.From.Name, h.err, h.From.LastWords())
			}
		}
		return h, nil
	case <-ctx.Done():
		return Heard[R]{}, context.Cause(ctx)
	}
}

// End ends all members, those that do not end when they are asked to by force, and waits until they are gone. Nothing is heard any more.
func (c *Cast[R]) End() {
	close(c.closed)
	var ending sync.WaitGroup
	for _, m := range c.Members {
		if m.Process != nil {
			ending.Go(func() { m.End(4 * time.Second) }) // stops when the process is gone
		}
	}
	ending.Wait()
}
