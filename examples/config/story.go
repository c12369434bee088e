//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// A story is what happens to the flags.
type story struct {
	cluster
	flags   Flags         // as they should be now
	slowest time.Duration // from an order until all had seen what it changed, while all lived
	gap     time.Duration // the same when the owner was killed
}

func newStory(out io.Writer, binary, dir string) *story {
	s := &story{cluster: cluster{out: out, cast: procs.NewCast[report](binary, dir, "app-1", "app-2", "app-3")}}
	for _, m := range s.cast.Members {
		s.apps = append(s.apps, &app{Member: m})
	}
	return s
}

func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{s.found, s.set, s.together, s.refuse, s.spoil, s.kill, s.audit} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) found(ctx context.Context) error {
	s.print("Three processes start, and find each other.")
	begun := time.Now()
	for _, a := range s.apps {
		if err := s.start(ctx, a); err != nil {
			return err
		}
	}
	_, err := s.seen(ctx, begun, "the flags", func(r *report) bool { return r.Err == "" && r.Flags == s.flags })
	s.print("  No flag was ever set, so each has the defaults: %s", s.flags)
	return err
}

// good waits until all that live have the flags as they should be.
func (s *story) good(ctx context.Context, begun time.Time) error {
	d, err := s.seen(ctx, begun, s.flags.String(), func(r *report) bool {
		return r.Err == "" && r.Flags == s.flags && r.Customers == s.flags.NewCheckout
	})
	s.slowest = max(s.slowest, d)
	return err
}

func (s *story) set(ctx context.Context) error {
	s.flags = Flags{NewCheckout: 10}
	s.print("app-1 sets the flags: %s", s.flags)
	begun := time.Now()
	if err := s.must(ctx, s.apps[0], order{Do: doSet, Flags: s.flags}); err != nil {
		return err
	}
	return s.good(ctx, begun)
}

// together has all three change the same record at once, each a part of it.
func (s *story) together(ctx context.Context) error {
	old := s.apps[0].now.Revision
	s.print("At the same time app-1 raises the percentage by 15, app-2 by 5, and app-3 sets a banner, all in the same record, each with Update.")
	begun := time.Now()
	for i, f := range []Flags{{NewCheckout: 15}, {NewCheckout: 5}, {Banner: "Sale"}} {
		s.apps[i].answer = nil
		if err := s.apps[i].Tell(order{Do: doUpdate, Flags: f}); err != nil {
			return err
		}
	}
	s.flags = Flags{NewCheckout: 30, Banner: "Sale"}
	if err := s.good(ctx, begun); err != nil {
		return err
	}
	s.print("  Nobody's change is lost: %s", s.flags)
	for _, a := range s.apps {
		if err := s.until(ctx, a.Name+" to answer", func() bool { return a.answer != nil }); err != nil {
			return err
		}
	}
	s.print("app-2 read the flags before that, and now writes what it made of them, with CompareAndSwap at revision %d.", old)
	if err := s.order(ctx, s.apps[1], order{Do: doSwap, Old: old, Flags: Flags{NewCheckout: 20}}); err != nil {
		return err
	}
	if r := s.apps[1].answer; !r.Conflict {
		return fmt.Errorf("swap at revision %d: got revision %d, %q, want a conflict", old, r.Revision, r.Err)
	}
	s.print("  Refused, nothing written: %s", s.apps[1].answer.Err)
	return nil
}

// refuse tries to write what Validate refuses.
func (s *story) refuse(ctx context.Context) error {
	s.print("app-2 sets 150 %%, a slip of the finger.")
	if err := s.order(ctx, s.apps[1], order{Do: doSet, Flags: Flags{NewCheckout: 150}}); err != nil {
		return err
	}
	if r := s.apps[1].answer; !r.BadValue {
		return fmt.Errorf("set 150 %%: got revision %d, %q, want it refused", r.Revision, r.Err)
	}
	s.print("  Refused, nothing written: %s", s.apps[1].answer.Err)
	return nil
}

// spoil writes a bad value as another program might, which knows nothing of Validate.
func (s *story) spoil(ctx context.Context) error {
	const raw = `{"NewCheckout":900}`
	s.print("Another program writes into the record behind Validate's back: %s", raw)
	begun := time.Now()
	if err := s.must(ctx, s.apps[2], order{Do: doSetRaw, Raw: raw}); err != nil {
		return err
	}
	kept := func(r *report) bool { return r.BadValue && r.Flags == s.flags && r.Customers == s.flags.NewCheckout }
	if _, err := s.seen(ctx, begun, "the bad value, and keep the last good one", kept); err != nil {
		return err
	}
	s.print("  Each stays at its last good flags, %s, and says why:", s.flags)
	for _, a := range s.apps {
		s.print("    %s: %s", a.Name, a.now.Err)
	}
	s.flags.NewCheckout = 35
	s.print("app-1 sets good ones again: %s", s.flags)
	begun = time.Now()
	if err := s.must(ctx, s.apps[0], order{Do: doSet, Flags: s.flags}); err != nil {
		return err
	}
	return s.good(ctx, begun)
}

// byName is the app of that name.
func (s *story) byName(name string) *app {
	return s.apps[slices.IndexFunc(s.apps, func(a *app) bool { return a.Name == name })]
}
