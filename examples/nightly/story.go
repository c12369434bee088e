//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// A story is told by one goroutine: until is the only place where anything is heard.
type story struct {
	out   io.Writer
	dir   string
	blows int
	first time.Time
	cast  *procs.Cast[report]
	audit *audit
}

func newStory(out io.Writer, binary, dir string, blows int) *story {
	return &story{
		out: out, dir: dir, blows: blows, cast: procs.NewCast[report](binary, dir, "app-1", "app-2", "app-3"), audit: newAudit(6 + 5*blows),
	}
}

func (s *story) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *story) tell(ctx context.Context) error {
	s.first = time.Now().Truncate(time.Second)
	s.print("Three processes share a nightly job. A night takes a second, and there are %d.", s.audit.dates)
	for _, a := range s.cast.Members {
		if err := s.start(ctx, a); err != nil {
			return err
		}
	}
	for k := range s.blows {
		blow := s.kill
		if k%2 == 1 {
			blow = s.pause
		}
		if err := s.strike(ctx, blow); err != nil {
			return err
		}
	}
	if err := s.awaitRecords(ctx); err != nil {
		return err
	}
	return s.audit.verdict(s.out, filepath.Join(s.dir, "bills"))
}

// strike lets some nights pass, and then strikes the app that begins a date, at once.
func (s *story) strike(ctx context.Context, blow func(context.Context, heard) error) error {
	if err := s.completions(ctx, 2); err != nil {
		return err
	}
	var victim heard
	if err := s.until(ctx, "a date to begin", func(h heard) bool { victim = h; return h.Kind == begins }); err != nil {
		return err
	}
	return blow(ctx, victim)
}

// kill kills the app, and starts it again after the others have gone on.
func (s *story) kill(ctx context.Context, h heard) error {
	a := h.from
	if err := a.Kill(); err != nil {
		return err
	}
	s.print("kill -9 %d: %s is gone in the middle of %s, attempt %d, token %d", a.Pid(), a.Name, h.Date, h.Attempt, h.Token)
	if err := s.completions(ctx, 2); err != nil {
		return err
	}
	if err := s.until(ctx, a.Name+" to end", func(heard) bool { return !a.Alive }); err != nil {
		return err
	}
	return s.start(ctx, a)
}

// pause stops the app until another has completed its date, and hears what becomes of its run when it wakes up.
func (s *story) pause(ctx context.Context, h heard) error {
	a := h.from
	if err := a.Pause(); err != nil {
		return err
	}
	s.print("kill -STOP %d: %s freezes in the middle of %s, attempt %d, token %d", a.Pid(), a.Name, h.Date, h.Attempt, h.Token)
	var by *procs.Member
	if err := s.until(ctx, h.Date+" to be completed", func(r heard) bool { by = r.from; return r.Kind == completed && r.Date == h.Date }); err != nil {
		return err
	}
	if err := a.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if by == a {
		s.print("%s wakes up: it had just completed %s when it froze", a.Name, h.Date)
		return nil
	}
	refused := func(r heard) bool { return r.from == a && r.Kind == failed && r.Date == h.Date && r.Token == h.Token }
	var late heard
	if err := s.until(ctx, a.Name+" to fail", func(r heard) bool { late = r; return refused(r) }); err != nil {
		return err
	}
	s.print("%s wakes up, goes on with %s, and is too late: %s", a.Name, h.Date, late.Err)
	return nil
}

// completions waits until n more dates are completed.
func (s *story) completions(ctx context.Context, n int) error {
	return s.until(ctx, "dates to be completed", func(h heard) bool {
		if h.Kind == completed {
			n--
		}
		return n <= 0
	})
}

// awaitRecords asks for the records until all dates are done.
func (s *story) awaitRecords(ctx context.Context) error {
	for !s.audit.complete() {
		if err := s.cast.Members[0].Tell("records"); err != nil {
			return err
		}
		if err := s.until(ctx, "the records", func(h heard) bool { return h.Kind == recorded }); err != nil {
			return err
		}
	}
	return nil
}
