//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// Flags are what is changed while the service runs: all that a request needs to know, in one record, so that it is read and written as a whole.
type Flags struct {
	NewCheckout int    // percent of the customers that get the new checkout
	Banner      string // shown to everybody, none if empty
}

// The prefix of all flags, and the key of these.
const (
	prefix = "flags/"
	key    = prefix + "shop"
)

// flagsOf is how every process of the service reads and writes its flags.
func flagsOf(n *node.Node) node.Typed[Flags] {
	return node.Typed[Flags]{Shard: n.Shard("flags"), Validate: validate}
}

// validate keeps out what would do harm. It is asked before each write, and after each read: another program may have written.
func validate(f Flags) error {
	if f.NewCheckout < 0 || f.NewCheckout > 100 {
		return fmt.Errorf("new checkout for %d %% of the customers, want 0 to 100", f.NewCheckout)
	}
	if len(f.Banner) > 40 {
		return fmt.Errorf("a banner of %d bytes, want 40 at most", len(f.Banner))
	}
	return nil
}

func (f Flags) String() string {
	banner := "no banner"
	if f.Banner != "" {
		banner = fmt.Sprintf("banner %q", f.Banner)
	}
	return fmt.Sprintf("new checkout for %d %%, %s", f.NewCheckout, banner)
}

// A shop is the service.
type shop struct {
	flags node.Typed[Flags]
	live  *node.Live[Flags]
}

// openShop returns once the present flags are known. They are kept up to date until ctx ends.
func openShop(ctx context.Context, n *node.Node) (s *shop, err error) {
	s = &shop{flags: flagsOf(n)}
	s.live, err = s.flags.Live(ctx, key, Flags{}) // before anything was set: the old checkout, no banner
	return s, err
}

// newCheckout is what a request asks. It costs a look into memory, so each request may.
func (s *shop) newCheckout(customer int) bool { return customer%100 < s.live.Load().NewCheckout }

// watchLive says what the flags are, and again whenever they change, until ctx ends. What comes quickly one after the other may be said as one.
func (s *shop) watchLive(ctx context.Context, say func(report)) {
	for {
		changed := s.live.Changed() // before the rest, so that no change is missed
		r := report{Kind: has, Flags: s.live.Load(), Revision: s.live.Revision()}
		for customer := range 100 {
			if s.newCheckout(customer) {
				r.Customers++
			}
		}
		say(failed(r, s.live.Err()))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// watchAll says each change of any flag, in order, none left out: for a log of who changed what, or to rebuild what depends on them.
func (s *shop) watchAll(ctx context.Context, say func(report)) error {
	for e, err := range s.flags.Watch(ctx, prefix, &node.WatchOptions{Initial: true, Relist: true}) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case e.Type == node.EventPut:
			say(failed(report{Kind: told, Flags: e.Value, Revision: e.Record.Mod}, e.Err))
		}
	}
	return nil
}
