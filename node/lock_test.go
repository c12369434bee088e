package node_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

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
