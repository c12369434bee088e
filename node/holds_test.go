package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// eachHold makes one hold of every kind in a shard, and says how to release it.
func eachHold(ctx context.Context, s *node.Shard) map[string]func(name string) (node.Hold, func(context.Context) error, error) {
	return map[string]func(name string) (node.Hold, func(context.Context) error, error){
		"Lock": func(name string) (node.Hold, func(context.Context) error, error) {
			l, err := s.Lock(ctx, name, nil)
			return l, l.Unlock, err
		},
		"RLock": func(name string) (node.Hold, func(context.Context) error, error) {
			l, err := s.RLock(ctx, name, nil)
			return l, l.Unlock, err
		},
		"LockAll": func(name string) (node.Hold, func(context.Context) error, error) {
			l, err := s.LockAll(ctx, []string{name, name + "-2"}, nil)
			return l, l.Unlock, err
		},
		"OwnSession": func(name string) (node.Hold, func(context.Context) error, error) {
			l, err := s.Lock(ctx, name, &node.LockOptions{TTL: 3 * time.Second})
			return l, l.Unlock, err
		},
		"Permit": func(name string) (node.Hold, func(context.Context) error, error) {
			p, err := s.Semaphore(ctx, name, 1, nil)
			return p, p.Release, err
		},
		"Leadership": func(name string) (node.Hold, func(context.Context) error, error) {
			l, err := s.Campaign(ctx, name, nil)
			return l, l.Resign, err
		},
		"Session": func(string) (node.Hold, func(context.Context) error, error) {
			x, err := s.Session(ctx, 3*time.Second)
			return x, x.Close, err
		},
	}
}

// Every kind of hold keeps the contract of Hold: tokens rise; a guarded write passes while it is held and is fenced after; release with
// a cancelled ctx is an error and can be repeated (case 18); a second release says ErrNotHeld; Done and Context end; a lost
// one says so by the local clock, before any later use of it succeeds (cases 23 and 157).
func TestHold_Conformance(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		s := c.Node(i).ShardAt(1)
		ctx := t.Context()
		var last node.Token
		for name, acquire := range eachHold(ctx, s) {
			h, release, err := acquire(name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if h.Token() <= last {
				t.Errorf("%s: token %d after %d", name, h.Token(), last)
			}
			last = h.Token()
			if err := h.Check(); err != nil {
				t.Errorf("%s: check: %v", name, err)
			}
			if _, err := s.Guarded(h).Put(ctx, "k", []byte(name), nil); err != nil {
				t.Errorf("%s: guarded put: %v", name, err)
			}
			hctx := h.Context(ctx)
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			if err := release(cancelled); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: release with a cancelled ctx: got %v, want context.Canceled", name, err)
			}
			if err := release(ctx); err != nil {
				t.Errorf("%s: release: %v", name, err)
			}
			if err := release(ctx); !errors.Is(err, node.ErrNotHeld) {
				t.Errorf("%s: second release: got %v, want ErrNotHeld", name, err)
			}
			if cause := context.Cause(hctx); !errors.Is(cause, node.ErrNotHeld) || !isDone(h) {
				t.Errorf("%s: after release: cause %v, done %v", name, cause, isDone(h))
			}
			if _, err := s.Guarded(h).Put(ctx, "k", []byte("late"), nil); !errors.Is(err, node.ErrFenced) {
				t.Errorf("%s: put guarded by a released hold: got %v, want ErrFenced", name, err)
			}
		}
		type held struct {
			h       node.Hold
			release func(context.Context) error
		}
		all := map[string]held{}
		for name, acquire := range eachHold(ctx, s) {
			h, release, err := acquire(name)
			if err != nil {
				t.Fatalf("%s again: %v", name, err)
			}
			all[name] = held{h, release}
		}
		c.Isolate(i)
		time.Sleep(5 * time.Second)
		for name, x := range all {
			if err := x.h.Check(); !errors.Is(err, node.ErrLost) || !isDone(x.h) {
				t.Errorf("%s cut off for longer than its TTL: check %v, done %v", name, err, isDone(x.h))
			}
			if err := x.release(ctx); !errors.Is(err, node.ErrLost) {
				t.Errorf("%s: release after loss: got %v, want ErrLost", name, err)
			}
		}
		c.Heal()
	})
}

// The zero value of every hold is not held, and harmless.
func TestHold_Zero(t *testing.T) {
	for _, h := range []node.Hold{&node.Lock{}, &node.Permit{}, &node.Leadership{}, &node.Run{}, &node.Session{}, node.Ownership{}} {
		if h.Token() != 0 || !errors.Is(h.Check(), node.ErrNotHeld) || !isDone(h) || context.Cause(h.Context(t.Context())) == nil {
			t.Errorf("%T: got token %d, check %v, done %v", h, h.Token(), h.Check(), isDone(h))
		}
	}
	for name, err := range map[string]error{
		"Unlock": (&node.Lock{}).Unlock(t.Context()), "Release": (&node.Permit{}).Release(t.Context()), "Resign": (&node.Leadership{}).Resign(t.Context()),
		"Proclaim": (&node.Leadership{}).Proclaim(t.Context(), nil), "Transfer": (&node.Leadership{}).Transfer(t.Context(), "x"), "Close": (&node.Session{}).Close(t.Context()),
	} {
		if !errors.Is(err, node.ErrNotHeld) {
			t.Errorf("%s of a zero value: got %v, want ErrNotHeld", name, err)
		}
	}
}

// Readers hold together, a writer alone, and a reader that comes after a waiting writer waits behind it: writers are not starved.
func TestShard_RLock_WritersAreNotStarved(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		a, b := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		r1, err1 := a.RLock(ctx, "x", nil)
		r2, err2 := b.RLock(ctx, "x", nil)
		if err1 != nil || err2 != nil {
			t.Fatalf("two readers: %v, %v", err1, err2)
		}
		order := make(chan string, 2)
		go func() {
			w, err := a.Lock(ctx, "x", nil)
			order <- "writer"
			if err == nil {
				err = w.Unlock(ctx)
			}
			if err != nil {
				t.Errorf("writer: %v", err)
			}
		}()
		time.Sleep(time.Second)
		if _, err := b.TryLock(ctx, "x", nil); !errors.Is(err, node.ErrHeld) {
			t.Errorf("try lock: got %v, want ErrHeld", err)
		}
		go func() {
			r, err := b.RLock(ctx, "x", nil)
			order <- "reader"
			if err == nil {
				err = r.Unlock(ctx)
			}
			if err != nil {
				t.Errorf("late reader: %v", err)
			}
		}()
		time.Sleep(time.Second)
		if err := errors.Join(r1.Unlock(ctx), r2.Unlock(ctx)); err != nil {
			t.Fatalf("unlock readers: %v", err)
		}
		if got := []string{<-order, <-order}; !slices.Equal(got, []string{"writer", "reader"}) {
			t.Errorf("order: got %v, want the writer first", got)
		}
		time.Sleep(time.Second)
	})
}

// LockAll takes all or none and does not deadlock, whatever the order of the names.
func TestShard_LockAll_NoDeadlock(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		names := []string{"a", "b", "c", "d"}
		var wg sync.WaitGroup
		var mu sync.Mutex
		holders := map[string]int{}
		for i := range 12 {
			wg.Go(func() {
				s := c.Node(i % 3).ShardAt(1)
				mine := []string{names[i%4], names[(i+1)%4], names[(i+3)%4]}
				if i%2 == 0 {
					slices.Reverse(mine)
				}
				l, err := s.LockAll(within(t, time.Minute), mine, nil)
				if err != nil {
					t.Errorf("lock all %v: %v", mine, err)
					return
				}
				mu.Lock()
				for _, n := range mine {
					if holders[n]++; holders[n] > 1 {
						t.Errorf("%q is held twice", n)
					}
				}
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				for _, n := range mine {
					holders[n]--
				}
				mu.Unlock()
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("unlock: %v", err)
				}
			})
		}
		wg.Wait()
		if _, err := c.Node(0).ShardAt(1).LockAll(t.Context(), []string{"a", "a"}, nil); !errors.Is(err, node.ErrInvalid) {
			t.Errorf("one name twice: got %v, want ErrInvalid", err)
		}
		for _, n := range names {
			l, err := c.Node(1).ShardAt(1).TryLock(t.Context(), n, nil)
			if err != nil {
				t.Errorf("%q after all are done: %v", n, err)
				continue
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
	})
}

// A semaphore has as many holders as permits, refuses another number, and grants more when it grows.
func TestShard_Semaphore(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		a, b := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		var permits []*node.Permit
		for i := range 2 {
			p, err := []*node.Shard{a, b}[i].Semaphore(ctx, "s", 2, nil)
			if err != nil {
				t.Fatalf("permit %d: %v", i, err)
			}
			permits = append(permits, p)
		}
		if _, err := a.Semaphore(ctx, "s", 3, nil); !errors.Is(err, node.ErrConflict) {
			t.Errorf("another number: got %v, want ErrConflict", err)
		}
		if _, err := a.TryLock(ctx, "s", nil); !errors.Is(err, node.ErrConflict) && !errors.Is(err, node.ErrHeld) {
			t.Errorf("lock of a semaphore: got %v, want ErrConflict or ErrHeld", err)
		}
		if _, err := a.Semaphore(ctx, "s", 2, &node.LockOptions{Wait: time.Second}); !errors.Is(err, node.ErrHeld) {
			t.Errorf("a third: got %v, want ErrHeld after Wait", err)
		}
		got := make(chan error, 1)
		go func() {
			p, err := b.Semaphore(ctx, "s", 2, nil)
			if err == nil {
				err = p.Release(ctx)
			}
			got <- err
		}()
		time.Sleep(time.Second)
		if err := a.SetPermits(ctx, "s", 3); err != nil {
			t.Errorf("set permits: %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("a waiter after the semaphore grew: %v", err)
		}
		for _, p := range permits {
			if err := p.Release(ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		if err := a.SetPermits(ctx, "s", 3); !errors.Is(err, node.ErrNotHeld) {
			t.Errorf("set permits of an idle name: got %v, want ErrNotHeld", err)
		}
	})
}

// An observer sees every leader, in the order of tokens, and the latest value; a leadership passes to whom it is transferred to.
func TestShard_Campaign(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		seen := make(chan string, 100)
		go func() {
			defer close(seen)
			for l, err := range c.Node(2).ShardAt(1).Observe(ctx, "e") {
				if err != nil {
					return
				}
				seen <- l.Member.Name + "=" + string(l.Value)
			}
		}()
		la, err := a.Campaign(ctx, "e", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := la.Proclaim(ctx, []byte("2")); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		won := make(chan *node.Leadership, 1)
		go func() {
			lb, err := b.Campaign(ctx, "e", []byte("3"))
			if err != nil {
				t.Errorf("second campaign: %v", err)
			}
			won <- lb
		}()
		time.Sleep(time.Second)
		if err := la.Transfer(ctx, c.Node(1).ID()); err != nil {
			t.Errorf("transfer: %v", err)
		}
		lb := <-won
		if lb.Token() <= la.Token() || la.Check() == nil {
			t.Errorf("tokens: got %d after %d; the former leader's check: %v", lb.Token(), la.Token(), la.Check())
		}
		time.Sleep(time.Second)
		if err := lb.Transfer(ctx, "nobody"); !errors.Is(err, node.ErrNotFound) {
			t.Errorf("transfer to nobody: got %v, want ErrNotFound", err)
		}
		time.Sleep(time.Second)
		cancel()
		var got []string
		for s := range seen {
			got = append(got, s)
		}
		n0, n1 := c.Node(0).Name(), c.Node(1).Name()
		if want := []string{"=", n0 + "=1", n0 + "=2", n1 + "=3", "="}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// Lead runs its function at one node at a time, goes to another when the leader dies, campaigns again after a failure, and ends when the function
// returns nil.
func TestShard_Lead(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		var mu sync.Mutex
		running, runs := 0, 0
		fn := func(ctx context.Context, l *node.Leadership) error {
			mu.Lock()
			running++
			runs++
			first := runs == 1
			if running > 1 {
				t.Error("two lead at once")
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				running--
				mu.Unlock()
			}()
			if first {
				return fmt.Errorf("planted")
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return nil
			}
		}
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				if err := c.Node(i).ShardAt(1).Lead(t.Context(), "e", fn); err != nil {
					t.Errorf("lead at node %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if runs < 3 {
			t.Errorf("runs: got %d, want one that failed and one for each node", runs)
		}
	})
}

// A job has one recorded run however many ask at once, and everybody gets its result; a run that fails or whose process dies leaves it to
// be done under a higher token and attempt (case 45).
func TestShard_RunOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		var mu sync.Mutex
		completed := 0
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				got, err := c.Node(i%3).ShardAt(1).RunOnce(t.Context(), "job", nil, func(context.Context, *node.Run) ([]byte, error) {
					time.Sleep(time.Second)
					return []byte("result"), nil
				})
				if err == nil {
					mu.Lock()
					completed++
					mu.Unlock()
				} else if !errors.Is(err, node.ErrAlreadyDone) {
					t.Errorf("caller %d: %v", i, err)
				}
				if string(got) != "result" {
					t.Errorf("caller %d: got %q, want the recorded result", i, got)
				}
			})
		}
		wg.Wait()
		if completed != 1 {
			t.Errorf("completed runs: got %d, want 1", completed)
		}

		s := c.Node(0).ShardAt(1)
		planted := errors.New("planted")
		var failed node.Token
		if _, err := s.RunOnce(t.Context(), "second", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
			failed = r.Token()
			return nil, planted
		}); !errors.Is(err, planted) {
			t.Errorf("a run that fails: got %v, want its error", err)
		}
		killed := others(c, c.AwaitOwner(1))[0]
		began := make(chan node.Token, 1)
		go func() {
			_, err := c.Node(killed).ShardAt(1).RunOnce(context.WithoutCancel(t.Context()), "second", nil, func(ctx context.Context, r *node.Run) ([]byte, error) {
				began <- r.Token()
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if err == nil {
				t.Error("a run whose node died was recorded")
			}
		}()
		second := <-began
		c.Kill(killed)
		other := c.Node(others(c, killed)[0]).ShardAt(1)
		if _, err := other.RunOnce(within(t, time.Minute), "second", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
			if r.Attempt() != 3 || !(failed < second && second < r.Token()) {
				t.Errorf("third run: got attempt %d, tokens %d %d %d", r.Attempt(), failed, second, r.Token())
			}
			return nil, nil
		}); err != nil {
			t.Errorf("third run: %v", err)
		}
		synctest.Wait()
	})
}

// The holder of a lock hears of a request to give it up, and of its forced end, within a round trip, on every node; a forced end frees the lock for
// the next, and the former holder's guarded writes are fenced.
func TestShard_ForceRelease(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		for i := range 3 {
			s, other := c.Node(i).ShardAt(1), c.Node((i+1)%3).ShardAt(1)
			name := fmt.Sprint("x", i)
			l := mustLock(t, s, name)
			time.Sleep(time.Second)
			if err := other.RequestRevoke(ctx, name); err != nil {
				t.Fatalf("request revoke: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
			select {
			case <-l.Revoked():
			default:
				t.Errorf("node %d: the holder did not hear of the request", i)
			}
			if err := l.Check(); err != nil {
				t.Errorf("a request took the lock: %v", err)
			}
			var infos []node.LockInfo
			for info, err := range other.Locks(ctx, name) {
				if err != nil {
					t.Fatalf("list: %v", err)
				}
				infos = append(infos, info)
			}
			if len(infos) != 1 || len(infos[0].Holders) != 1 || infos[0].Holders[0].Token != l.Token() || infos[0].Holders[0].Member.ID != c.Node(i).ID() || infos[0].Holders[0].Age < time.Second {
				t.Errorf("list: got %+v, want the one holder", infos)
			}
			if err := other.ForceRelease(ctx, name, l.Token()); err != nil {
				t.Fatalf("force release: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := l.Check(); !errors.Is(err, node.ErrLost) || !isDone(l) {
				t.Errorf("node %d after a forced release: check %v, done %v", i, err, isDone(l))
			}
			if _, err := s.Guarded(l).Put(ctx, "k", nil, nil); !errors.Is(err, node.ErrFenced) {
				t.Errorf("guarded put: got %v, want ErrFenced", err)
			}
			next, err := other.TryLock(ctx, name, nil)
			if err != nil || next.Token() <= l.Token() {
				t.Fatalf("the next: token %d after %d, %v", next.Token(), l.Token(), err)
			}
			if err := other.ForceRelease(ctx, name, l.Token()); !errors.Is(err, node.ErrNotHeld) {
				t.Errorf("forced release by an old token: got %v, want ErrNotHeld", err)
			}
			if err := next.Unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
	})
}

// A notice is not lost when the shard's owner changes between the forced release and the listener's next question.
func TestShard_ForceRelease_OverFailover(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		l, err := c.Node(i).ShardAt(1).Lock(t.Context(), "x", &node.LockOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.Drop(owner, i) // the holder cannot be told
		if err := c.Node(others(c, owner, i)[0]).ShardAt(1).ForceRelease(within(t, 10*time.Second), "x", l.Token()); err != nil {
			t.Fatalf("force release: %v", err)
		}
		c.Kill(owner)
		c.Heal()
		time.Sleep(10 * time.Second)
		if err := l.Check(); !errors.Is(err, node.ErrLost) {
			t.Errorf("check after the failover: got %v, want ErrLost", err)
		}
	})
}

// MaxHold ends a hold by the holder's clock first, and then frees the lock; Grace keeps the name of a dead holder closed, and not that of one that
// released.
func TestLockOptions_MaxHoldAndGrace(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		i := others(c, c.AwaitOwner(1))[0]
		j := others(c, c.AwaitOwner(1), i)[0]
		a, b := c.Node(i).ShardAt(1), c.Node(j).ShardAt(1)
		l, err := a.Lock(ctx, "m", &node.LockOptions{MaxHold: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		next, err := b.Lock(ctx, "m", nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second || l.Check() == nil {
			t.Errorf("next grant after MaxHold of 3s: after %v, former holder's check %v", took, l.Check())
		}
		if err := next.Unlock(ctx); err != nil {
			t.Errorf("unlock: %v", err)
		}
		g, err := a.Lock(ctx, "g", &node.LockOptions{Grace: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		again, err := b.TryLock(ctx, "g", nil)
		if err != nil {
			t.Fatalf("after a release: %v, want no grace", err)
		}
		if err := again.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Lock(ctx, "g", &node.LockOptions{Grace: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c.Kill(i)
		start = time.Now()
		if _, err := b.Lock(within(t, time.Minute), "g", nil); err != nil {
			t.Fatalf("after the grace: %v", err)
		}
		if took := time.Since(start); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("grant after the death of a holder with a grace of 10s: after %v", took)
		}
	})
}
