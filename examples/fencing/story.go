//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/oarlock/oarlock/node"
)

// When what happens, in units.
const (
	lease = 10 // of the lock: so long after A's last sign of life it may be granted to B
	takes = 12 // B takes it
	wakes = 15 // A goes on
)

// The account: A and B both read the first number and pay in.
const (
	before = 80
	byA    = 20
	byB    = 10
)

// tell tells the story twice. No process is left when it returns.
func tell(ctx context.Context, out io.Writer, s *stage) error {
	defer s.cast.End()
	for _, p := range s.cast.Members {
		if err := s.start(ctx, p); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		title  string
		fenced bool
		want   int
	}{{"without fencing:", false, before + byA}, {"with fencing tokens:", true, before + byB}} {
		_, _ = fmt.Fprintln(out, c.title)
		got, err := (&story{stage: s, out: out}).tell(ctx, c.fenced)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "  final value: 'balance=%d'\n", got)
		if got != c.want {
			return fmt.Errorf("%s the balance ended at %d, want %d", c.title, got, c.want)
		}
	}
	return nil
}

// story is one telling.
type story struct {
	*stage
	out   io.Writer
	begun time.Time // when A had the lock
}

// tell returns the balance at the end.
func (s *story) tell(ctx context.Context, fenced bool) (balance int, err error) {
	acc := &account{balance: before}
	bank, err := openBank(acc, fenced)
	if err != nil {
		return 0, err
	}
	defer bank.close()

	a, err := s.ask(ctx, s.a, order{Do: doPrepare, URL: bank.url, Add: byA})
	if err != nil {
		return 0, err
	}
	s.begun = time.Now()
	s.event("A", a.Token, "takes the lock for %d units, reads balance=%d, checks the lock: held", lease, a.Balance)
	if err := s.a.Pause(); err != nil {
		return 0, err
	}
	s.event("A", a.Token, "is paused (SIGSTOP), just before it writes balance=%d", a.Balance+byA)
	if err := s.until(ctx, takes); err != nil {
		return 0, err
	}
	if err := s.overtake(ctx, a.Token, bank.url); err != nil {
		return 0, err
	}
	if err := s.until(ctx, wakes); err != nil {
		return 0, err
	}
	// The order waits in A's stdin when it wakes up: the write is the next thing that it does.
	if err := s.a.Tell(order{Do: doWrite}); err != nil {
		return 0, err
	}
	if err := s.a.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	s.event("A", a.Token, "wakes up (SIGCONT) and goes on where it was")
	late, err := s.hear(ctx, s.a)
	if err != nil {
		return 0, err
	}
	s.wrote("A", late, a.Balance+byA)
	if late.Lost {
		s.event("A", a.Token, "asks its lock again: lost")
	}
	_, err = s.ask(ctx, s.b, order{Do: doUnlock})
	return acc.get(), err
}

// overtake has B take the lock that A still believes to hold, and write.
func (s *story) overtake(ctx context.Context, old node.Token, url string) error {
	b, err := s.ask(ctx, s.b, order{Do: doPrepare, URL: url, Add: byB})
	if err != nil {
		return err
	}
	s.event("B", b.Token, "takes the lock, as A's lease has run out, reads balance=%d, checks the lock: held", b.Balance)
	if b.Token <= old {
		return fmt.Errorf("client B has token %d, after A's %d", b.Token, old)
	}
	wrote, err := s.ask(ctx, s.b, order{Do: doWrite})
	if err != nil {
		return err
	}
	s.wrote("B", wrote, b.Balance+byB)
	return nil
}

// wrote tells how the bank answered.
func (s *story) wrote(who string, r report, balance int) {
	if r.Seen != 0 {
		s.event(who, r.Token, "write of balance=%d rejected (token %d < %d)", balance, r.Token, r.Seen)
		return
	}
	s.event(who, r.Token, "write of balance=%d accepted", balance)
}

// event prints a line: when, who, under which token, and what.
func (s *story) event(who string, token node.Token, what string, args ...any) {
	t := float64(time.Since(s.begun)) / float64(unit)
	_, _ = fmt.Fprintf(s.out, "  t=%-4.0f%s  token=%-4d%s\n", t, who, token, fmt.Sprintf(what, args...))
}

// until waits until it is that many units after A took the lock.
func (s *story) until(ctx context.Context, units int) error {
	t := time.NewTimer(time.Until(s.begun.Add(time.Duration(units) * unit)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until t=%d: %w", units, context.Cause(ctx))
	}
}
