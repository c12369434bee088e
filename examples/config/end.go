//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oarlock/oarlock/node"
)

// kill kills the process that owns the shard of the flags, changes them, and starts it again.
func (s *story) kill(ctx context.Context) error {
	if err := s.must(ctx, s.apps[0], order{Do: doAsk}); err != nil {
		return err
	}
	owner := s.byName(s.apps[0].answer.Owner)
	other := s.apps[(slices.Index(s.apps, owner)+1)%len(s.apps)]
	s.flags.Banner = "Sale ends today"
	begun := time.Now()
	if err := owner.Kill(); err != nil {
		return err
	}
	s.print("kill -9 %d: %s, which owned the flags' shard, is gone. %s sets: %s", owner.Pid(), owner.Name, other.Name, s.flags)
	if err := s.must(ctx, other, order{Do: doSet, Flags: s.flags}); err != nil {
		return err
	}
	if err := s.until(ctx, owner.Name+" to end", func() bool { return !owner.Alive }); err != nil {
		return err
	}
	var err error
	ok := func(r *report) bool { return r.Err == "" && r.Flags == s.flags }
	if s.gap, err = s.seen(ctx, begun, s.flags.String(), ok); err != nil {
		return err
	}
	s.print("%s is started again, in its directory.", owner.Name)
	begun = time.Now()
	if err := s.start(ctx, owner); err != nil {
		return err
	}
	if err := s.until(ctx, owner.Name+" to have flags", func() bool { return owner.first != nil }); err != nil {
		return err
	}
	if owner.first.Flags != s.flags {
		return fmt.Errorf("%w: %s starts with %s, want %s", errUnseen, owner.Name, owner.first.Flags, s.flags)
	}
	s.print("  %s after its start it serves, and has the present flags from the first moment: %s", round(owner.at.Sub(begun)), s.flags)
	s.flags = Flags{NewCheckout: 100}
	s.print("%s sets: %s", owner.Name, s.flags)
	begun = time.Now()
	if err := s.must(ctx, owner, order{Do: doSet, Flags: s.flags}); err != nil {
		return err
	}
	return s.good(ctx, begun)
}

// audit compares what each process was told by its watch with the history of the record.
func (s *story) audit(ctx context.Context) error {
	if err := s.must(ctx, s.apps[0], order{Do: doAsk}); err != nil {
		return err
	}
	var all []node.Revision
	s.print("The record's history:")
	for _, c := range s.apps[0].answer.History {
		s.print("  revision %d  %s  %s", c.Revision, c.At.Format("15:04:05.000"), c.Value)
		all = append(all, c.Revision)
	}
	if want := 8; len(all) != want {
		return fmt.Errorf("the history has %d changes, want %d", len(all), want)
	}
	for _, a := range s.apps {
		if err := s.toldAll(ctx, a, all); err != nil {
			return err
		}
	}
	s.print("%d changes: each process saw every one that was made while it ran, once and in order, after %s at most;", len(all), round(s.slowest))
	s.print("after %s when the owner was killed.", round(s.gap))
	return nil
}

// toldAll wants that the watch of an app tells of each change from the one that the app found at its start.
func (s *story) toldAll(ctx context.Context, a *app, all []node.Revision) error {
	want := all
	if a.first.Revision != 0 {
		want = all[max(0, slices.Index(all, a.first.Revision)):]
	}
	err := s.until(ctx, a.Name+" to be told of the last change", func() bool { return slices.Contains(a.told, all[len(all)-1]) })
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return err
	case err != nil || !slices.Equal(a.told, want):
		return fmt.Errorf("%w: %s was told of revisions %d, want %d", errUnseen, a.Name, a.told, want)
	}
	return nil
}
