package node_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// second is what an iterator ends with.
func second[T any](seq func(yield func(T, error) bool)) (err error) {
	for _, err = range seq {
	}
	return err
}

// blocking are all public calls that wait for a shard, on n without a majority. The holds were made before.
func blocking(n *node.Node, l, l2 *node.Lock, p *node.Permit, e, e2, e3 *node.Leadership, x *node.Session) map[string]func(context.Context) error {
	s := n.ShardAt(1)
	lock := func(_ *node.Lock, err error) error { return err }
	rev := func(_ node.Revision, err error) error { return err }
	run := func(context.Context, *node.Run) ([]byte, error) { return nil, nil }
	return map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error { return lock(s.Lock(ctx, "a", nil)) },
		"LockOwnSession": func(ctx context.Context) error {
			return lock(s.Lock(ctx, "a", &node.LockOptions{TTL: 5 * time.Second}))
		},
		"LockHeld":      func(ctx context.Context) error { return lock(s.Lock(ctx, "a", nil)) },
		"TryLock":       func(ctx context.Context) error { return lock(s.TryLock(ctx, "a", nil)) },
		"RLock":         func(ctx context.Context) error { return lock(s.RLock(ctx, "a", nil)) },
		"LockAll":       func(ctx context.Context) error { return lock(s.LockAll(ctx, []string{"a", "b"}, nil)) },
		"Semaphore":     func(ctx context.Context) error { _, err := s.Semaphore(ctx, "s", 1, nil); return err },
		"SetPermits":    func(ctx context.Context) error { return s.SetPermits(ctx, "p", 3) },
		"Locks":         func(ctx context.Context) error { return second(s.Locks(ctx, "")) },
		"ForceRelease":  func(ctx context.Context) error { return s.ForceRelease(ctx, "l", l.Token()) },
		"RequestRevoke": func(ctx context.Context) error { return s.RequestRevoke(ctx, "l") },
		"Campaign":      func(ctx context.Context) error { _, err := s.Campaign(ctx, "a", nil); return err },
		"Observe":       func(ctx context.Context) error { return second(s.Observe(ctx, "a")) },
		"Lead": func(ctx context.Context) error {
			return s.Lead(ctx, "a", func(context.Context, *node.Leadership) error { return nil })
		},
		"Proclaim":       func(ctx context.Context) error { return e.Proclaim(ctx, nil) },
		"Transfer":       func(ctx context.Context) error { return e3.Transfer(ctx, n.ID()) },
		"RunOnce":        func(ctx context.Context) error { _, err := s.RunOnce(ctx, "a", nil, run); return err },
		"Jobs":           func(ctx context.Context) error { return second(s.Jobs(ctx, "")) },
		"ForgetJob":      func(ctx context.Context) error { return s.ForgetJob(ctx, "a") },
		"Get":            func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"Put":            func(ctx context.Context) error { return rev(s.Put(ctx, "a", nil, nil)) },
		"Delete":         func(ctx context.Context) error { return rev(s.Delete(ctx, "a")) },
		"CompareAndSwap": func(ctx context.Context) error { return rev(s.CompareAndSwap(ctx, "a", 0, nil, nil)) },
		"Session":        func(ctx context.Context) error { _, err := s.Session(ctx, 5*time.Second); return err },
		"Owner":          func(ctx context.Context) error { _, _, err := n.Owner(ctx, 1); return err },
		"Ready":          n.Ready,
		"Own": func(ctx context.Context) error {
			return n.Own(ctx, nil, func(context.Context, node.Ownership) error { return nil })
		},
		"Unlock":  l2.Unlock,
		"Release": p.Release,
		"Resign":  e2.Resign,
		"Close":   x.Close,
	}
}

// Without a majority every call that blocks returns by its ctx's deadline and wraps its error, alone and all at once; what they leave to be
// cleaned up holds nobody up: case 22.
func TestCase022_NoQuorum(t *testing.T) {
	const limit, slack = 500 * time.Millisecond, 100 * time.Millisecond
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(time.Minute)}, func(t *testing.T, c *nodetest.Cluster) {
		for _, i := range []int{c.AwaitOwner(1), (c.AwaitOwner(1) + 1) % 3} { // the owner, and another
			n, ctx := c.Node(i), t.Context()
			s := n.ShardAt(1)
			own := fmt.Sprint("-", i) // the names of this round: what it fails to give back stays held
			p, err1 := s.Semaphore(ctx, "p"+own, 2, nil)
			e, err2 := s.Campaign(ctx, "e"+own, nil)
			e2, err3 := s.Campaign(ctx, "e2"+own, nil)
			e3, err4 := s.Campaign(ctx, "e3"+own, nil)
			x, err5 := s.Session(ctx, time.Minute)
			if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
				t.Fatal(err)
			}
			kept := mustLock(t, s, "kept"+own)
			calls := blocking(n, mustLock(t, s, "l"+own), mustLock(t, s, "l2"+own), p, e, e2, e3, x)
			for _, k := range others(c, i) {
				c.Drop(i, k)
			}
			time.Sleep(2 * time.Second)
			type result struct {
				name string
				took time.Duration
				err  error
			}
			results := make(chan result, len(calls))
			for name, call := range calls {
				go func() { // stops with its ctx
					ctx, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					began := time.Now()
					err := call(ctx)
					results <- result{name, time.Since(began), err}
				}()
			}
			for range calls {
				select {
				case r := <-results:
					if r.took > limit+slack || !errors.Is(r.err, context.DeadlineExceeded) {
						t.Errorf("node %d: %s: %v after %v, want the ctx's error within %v", i, r.name, r.err, r.took, limit+slack)
					}
					delete(calls, r.name)
				case <-time.After(time.Minute):
					t.Fatalf("node %d: hang: %d calls", i, len(calls))
				}
			}
			c.Heal()
			c.AwaitReady()
			time.Sleep(5 * time.Second)
			if err := kept.Check(); err != nil {
				t.Errorf("node %d: a hold with a long TTL after the outage: %v", i, err)
			}
			if err := errors.Join(kept.Unlock(ctx), mustLock(t, s, "b"+own).Unlock(ctx)); err != nil {
				t.Errorf("node %d: after the outage: %v", i, err)
			}
		}
	})
}

// A TTL, MaxHold, Grace or Wait that is out of bounds is ErrInvalid, with the field or its bounds, and is not rounded; so is a TTL that no
// election outlasts: case 159.
func TestCase159_TimesOutOfBounds(t *testing.T) {
	const election = 2 * time.Second
	o := &nodetest.Options{Config: func(_ int, c *node.Config) { c.ElectionTimeout = election }}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		ctx, s := t.Context(), c.Node(0).ShardAt(1)
		bad := []time.Duration{math.MinInt64, -1, 1, time.Microsecond, time.Hour*24*366 + 1, math.MaxInt64}
		ttls := append([]time.Duration{time.Millisecond, 49 * time.Millisecond, 1500 * time.Millisecond, election - 1, time.Hour + 1, 24 * time.Hour}, bad...)
		invalid := func(what string, d time.Duration, err error, bounds string) {
			t.Helper()
			if !errors.Is(err, node.ErrInvalid) || !strings.Contains(err.Error(), bounds) {
				t.Errorf("%s %v: got %v, want ErrInvalid with %q", what, d, err, bounds)
			}
		}
		for _, d := range ttls {
			_, err := s.Session(ctx, d)
			invalid("session of TTL", d, err, "2s to 1h")
		}
		for _, d := range ttls {
			_, err := s.Lock(ctx, "l", &node.LockOptions{TTL: d})
			invalid("lock of TTL", d, err, "2s to 1h")
			_, err = s.RunOnce(ctx, "j", &node.JobOptions{TTL: d}, func(context.Context, *node.Run) ([]byte, error) { return nil, nil })
			invalid("run of TTL", d, err, "2s to 1h")
		}
		for _, d := range []time.Duration{math.MinInt64, -1, 24*366*time.Hour + 1, math.MaxInt64} {
			_, err := s.Lock(ctx, "l", &node.LockOptions{MaxHold: d})
			invalid("lock of MaxHold", d, err, "0 to 8784h")
			_, err = s.Lock(ctx, "l", &node.LockOptions{Grace: d})
			invalid("lock of Grace", d, err, "0 to 24h")
		}
		_, err := s.Lock(ctx, "l", &node.LockOptions{Wait: -1})
		invalid("lock of Wait", -1, err, "Wait = -1ns")
		for _, d := range []time.Duration{election, 2500 * time.Millisecond, 1<<31 + 1, time.Hour} { // as given, to the nanosecond
			l := lockFor(t, s, "l", d)
			if err := l.Unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
		l, err := s.Lock(ctx, "l", &node.LockOptions{MaxHold: 24 * 366 * time.Hour, Grace: 24 * time.Hour, Wait: math.MaxInt64})
		if err != nil || l.Unlock(ctx) != nil {
			t.Errorf("the largest of all: %v", err)
		}
		for _, cfg := range []node.Config{{SessionTTL: 1}, {SessionTTL: -1}, {SessionTTL: time.Hour + 1}, {SessionTTL: time.Second, ElectionTimeout: election}} {
			cfg.Name, cfg.Dir, cfg.Bind = "x", t.TempDir(), "127.0.0.1:0"
			if n, err := node.Open(ctx, cfg); !errors.Is(err, node.ErrInvalid) || !strings.Contains(err.Error(), "SessionTTL") {
				t.Errorf("SessionTTL %v: got %v, want ErrInvalid with the field", cfg.SessionTTL, err)
				if err == nil {
					_ = n.Close()
				}
			}
		}
	})
}

// A hold outlives the worker that took it and its ctx, as documented, for as long as its process lives: it shows with its age in Locks and in
// Stats, MaxHold ends it, and a context of the hold ends with it: case 10.
func TestCase010_WorkerDied(t *testing.T) {
	const bound = 10 * time.Second
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		holder := caller(c)
		n := c.Node(holder)
		s, b := n.ShardAt(1), c.Node(c.AwaitOwner(1)).ShardAt(1)
		contexts := make(chan context.Context, 2)
		work := func(name string, o *node.LockOptions) { // a worker whose panic is recovered somewhere above
			defer func() { _ = recover() }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l, err := s.Lock(ctx, name, o)
			if err != nil {
				t.Errorf("lock %q: %v", name, err)
			}
			contexts <- l.Context(t.Context())
			panic("planted")
		}
		began := time.Now()
		work("bounded", &node.LockOptions{MaxHold: bound, Value: []byte("worker")})
		work("leaked", nil)
		bounded, leaked := <-contexts, <-contexts
		time.Sleep(bound / 2)
		for info, err := range b.Locks(t.Context(), "") {
			if err != nil || len(info.Holders) != 1 {
				t.Fatalf("locks: got %+v, %v", info, err)
			}
			h := info.Holders[0]
			if h.Member.ID != n.ID() || h.Age < bound/2-time.Second || h.Age > time.Since(began) {
				t.Errorf("%s: got %+v, want its holder with its age", info.Name, h)
			}
			_, err = b.TryLock(t.Context(), info.Name, nil)
			wantErr(t, "try lock of "+info.Name, err, node.ErrHeld)
		}
		if st := n.Stats(); st.Holds != 2 || st.OldestHold < bound/2-time.Second || st.OldestHold > time.Since(began) {
			t.Errorf("stats: got %+v, want two holds with their age", st.SessionStats)
		}
		if took := freeAfter(t, c, b, "bounded", began); took < bound || took > outlasted(bound)+time.Second {
			t.Errorf("a MaxHold of %v ended after %v", bound, took)
		}
		if got := context.Cause(bounded); !errors.Is(got, node.ErrLost) {
			t.Errorf("context of the bounded hold: got %v, want ErrLost", got)
		}
		time.Sleep(time.Minute)
		if st := n.Stats(); leaked.Err() != nil || st.Holds != 1 || st.OldestHold < time.Minute {
			t.Errorf("the leaked hold: context %v, stats %+v", leaked.Err(), st.SessionStats)
		}
		c.Kill(holder)
		if took := freeAfter(t, c, b, "leaked", time.Now()); took > 6*time.Second {
			t.Errorf("the leaked hold outlived its process by %v", took)
		}
	})
}
