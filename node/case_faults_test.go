package node_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Listeners that do not read hold nothing up: the shard's owner changes again and again, writes go on, and when they read at last they get
// the latest owner, under a newer token, and the latest members: case 42.
func TestCase042_SlowListenersHoldNothingUp(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		type watch struct {
			owners  func() (node.ShardOwner, error, bool)
			members func() (node.Member, error, bool)
			first   node.ShardOwner
		}
		var watches []*watch
		for i := range 3 {
			w := &watch{}
			var stop func()
			w.owners, stop = iter.Pull2(c.Node(i).WatchOwners(t.Context()))
			defer stop()
			w.members, stop = iter.Pull2(c.Node(i).WatchMembers(t.Context()))
			defer stop()
			var err error
			if w.first, err, _ = w.owners(); err != nil {
				t.Fatalf("watch owners: %v", err)
			}
			if _, err, _ := w.members(); err != nil {
				t.Fatalf("watch members: %v", err)
			}
			watches = append(watches, w)
		}
		for k := range nightly(10, 100) {
			owner := c.AwaitOwner(1)
			c.Isolate(owner)
			c.Await("another owner", func() bool { i := c.Owner(1); return i >= 0 && i != owner })
			for _, i := range others(c, owner) {
				mustPut(t, c.Node(i).ShardAt(1), fmt.Sprint("k", i), fmt.Sprint(k))
			}
			c.Heal()
			c.AwaitReady()
		}
		time.Sleep(15 * time.Second)
		for i, w := range watches {
			m, token, err := c.Node(i).Owner(t.Context(), 1)
			if err != nil {
				t.Fatalf("owner: %v", err)
			}
			got, err, ok := w.owners()
			if err != nil || !ok || got.Member.ID != m.ID || got.Token != token || got.Token <= w.first.Token {
				t.Errorf("node %d: the listener got %s with token %d, %v, %v, want %s with %d", i, got.Member.Name, got.Token, err, ok, m.Name, token)
			}
			alive := map[string]bool{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for m, err := range c.Node(i).WatchMembers(ctx) {
				if err != nil {
					break
				}
				alive[m.ID] = m.State == node.MemberAlive
			}
			cancel()
			if len(alive) != 3 {
				t.Errorf("node %d sees members %v, want three", i, alive)
			}
			for id, a := range alive {
				if !a {
					t.Errorf("node %d does not see %s alive", i, id)
				}
			}
		}
	})
}

// What writes in flight say when their owner is cut off agrees with the final state: done is there, not done is not, and unknown may be
// either. Locks taken and given back meanwhile stay exclusive: case 60.
func TestCase060_OutcomesAgreeWithTheState(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		h := c.History()
		rng := rand.New(rand.NewPCG(1, 60))
		type claim struct {
			key string
			err error
		}
		var mu sync.Mutex
		var claims []claim
		counts := map[string]int{}
		for round := range nightly(5, 50) {
			owner := c.AwaitOwner(1)
			var wg sync.WaitGroup
			for w := range 12 {
				i := w % 3
				pause := time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
				wg.Go(func() { // stops when its operations returned
					s := c.Node(i).ShardAt(1)
					for n := range 4 {
						time.Sleep(pause)
						key := fmt.Sprintf("r%d-w%d-%d", round, w, n)
						_, err := s.Put(within(t, 2*time.Second), key, []byte("v"), nil)
						mu.Lock()
						claims = append(claims, claim{key, err})
						mu.Unlock()
						_, _ = h.Put(within(t, 2*time.Second), s, fmt.Sprint("shared", w%4), key)
						if l, err := h.TryLock(within(t, 2*time.Second), s, fmt.Sprint("l", w%2), nil); err == nil {
							_ = h.Unlock(within(t, 2*time.Second), s, fmt.Sprint("l", w%2), l)
						}
					}
				})
			}
			time.Sleep(time.Duration(rng.Int64N(int64(40 * time.Millisecond))))
			c.Isolate(owner)
			time.Sleep(4 * time.Second)
			c.Heal()
			wg.Wait()
			c.AwaitReady()
		}
		s := c.Node(0).ShardAt(1)
		for _, x := range claims {
			_, err := s.Get(within(t, 10*time.Second), x.key)
			if err != nil && !errors.Is(err, node.ErrNotFound) {
				t.Fatalf("get %q: %v", x.key, err)
			}
			there := err == nil
			switch {
			case x.err == nil:
				counts["done"]++
				if !there {
					t.Errorf("put %q was acknowledged and is not there", x.key)
				}
			case errors.Is(x.err, node.ErrUnknown):
				counts["unknown"]++
			default:
				counts["not done"]++
				if there {
					t.Errorf("put %q failed as not done, with %v, and is there", x.key, x.err)
				}
			}
		}
		t.Logf("outcomes: %v", counts)
		if counts["done"] == 0 || counts["unknown"] == 0 {
			t.Errorf("outcomes %v: the test needs some of each", counts)
		}
	})
}

// An owner that is cut off serves no stale read: as soon as the others may have changed the record, its reads fail or wait, and so do
// questions for the owner and its token: case 61.
func TestCase061_IsolatedOwnerReadsNothingStale(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		old := c.Node(owner)
		mustPut(t, old.ShardAt(1), "k", "old")
		_, first, err := old.Owner(t.Context(), 1)
		if err != nil {
			t.Fatalf("owner: %v", err)
		}
		var mu sync.Mutex
		changed := false
		c.Isolate(owner)
		var wg sync.WaitGroup
		wg.Go(func() { // stops when the others have written
			mustPut(t, c.Node((owner+1)%3).ShardAt(1), "k", "new")
			mu.Lock()
			changed = true
			mu.Unlock()
		})
		served := 0
		for range 5000 {
			mu.Lock()
			late := changed
			mu.Unlock()
			wg.Go(func() { // stops after 20 ms at the latest
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				r, err := old.ShardAt(1).Get(ctx, "k")
				_, token, oerr := old.Owner(ctx, 1)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && late && string(r.Value) != "new":
					t.Errorf("read %q after it was overwritten", r.Value)
				case oerr == nil && late && token <= first:
					t.Errorf("got owner token %d after a newer one was granted", token)
				case err == nil:
					served++
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if !changed || served == 0 {
			t.Errorf("the others wrote: %v, the owner served %d reads while its lease lasted: the test needs both", changed, served)
		}
	})
}

// A cluster of one node acknowledges nothing that a loss of power takes back: case 63.
func TestCase063_OneNodeIsDurable(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *nodetest.Cluster) {
		for k := range nightly(200, 10_000) {
			key, value := fmt.Sprint("k", k%7), fmt.Sprint(k)
			mustPut(t, c.Node(0).ShardAt(1), key, value)
			c.Kill(0)
			c.Restart(0)
			r, err := c.Node(0).ShardAt(1).Get(within(t, 30*time.Second), key)
			if err != nil || string(r.Value) != value {
				t.Fatalf("crash %d: get %q: got %q, %v, want %q", k, key, r.Value, err, value)
			}
		}
	})
}

// After the owner was killed the next write and read succeed within 4 s, and the lock that it held is free within its TTL and 4 s: case
// 126. That is the 99th percentile of many kills. Two nodes are left to elect, and in about one kill of twenty they split the vote, which
// costs another election of 1 to 2 s: so of twenty kills one may take that much longer, and none takes more.
func TestCase126_FailoverIsBounded(t *testing.T) {
	const limit, split, ttl = 4 * time.Second, 2 * time.Second, 5 * time.Second
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		kills := nightly(20, 200)
		var took [3][]time.Duration
		for k := range kills {
			for i, d := range failover(t, c, time.Duration(k)*97*time.Millisecond) {
				took[i] = append(took[i], d)
			}
		}
		for i, what := range []string{"write", "read", "lock"} {
			limit := limit
			if what == "lock" {
				limit += ttl * 101 / 100
			}
			slices.Sort(took[i])
			late, worst := took[i][kills-1-max(1, kills/100)], took[i][kills-1]
			t.Logf("%s after a kill: median %v, worst but one in a hundred, at least one, %v, worst %v", what, took[i][kills/2], late, worst)
			if late > limit || worst > limit+split {
				t.Errorf("%s after a kill: got %v and at worst %v, want at most %v and %v", what, late, worst, limit, limit+split)
			}
		}
	})
}

// failover kills the owner after a while and returns how long the next write, read and grant of a lock that it held took. Then it starts it
// again.
func failover(t *testing.T, c *nodetest.Cluster, after time.Duration) (took [3]time.Duration) {
	owner := c.AwaitOwner(1)
	s := c.Node((owner + 1) % 3).ShardAt(1)
	mustPut(t, s, "k", "before")
	l := mustLock(t, c.Node(owner).ShardAt(1), "l")
	time.Sleep(after)
	killed := time.Now()
	c.Kill(owner)
	var wg sync.WaitGroup
	wg.Go(func() { // stops when the write is done
		if _, err := s.Put(within(t, time.Minute), "k", []byte("after"), nil); err != nil {
			t.Errorf("put: %v", err)
		}
		took[0] = time.Since(killed)
	})
	wg.Go(func() { // stops when the read is done
		if _, err := c.Node((owner+2)%3).ShardAt(1).Get(within(t, time.Minute), "k"); err != nil {
			t.Errorf("get: %v", err)
		}
		took[1] = time.Since(killed)
	})
	wg.Go(func() { // stops when the lock is granted
		next, err := s.Lock(within(t, time.Minute), "l", nil)
		for errors.Is(err, node.ErrLost) { // the waiter's own session did not outlive the election
			next, err = s.Lock(within(t, time.Minute), "l", nil)
		}
		took[2] = time.Since(killed)
		if err != nil {
			t.Errorf("lock: %v", err)
			return
		}
		if next.Token() <= l.Token() {
			t.Errorf("token of the next grant: got %d after %d", next.Token(), l.Token())
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Errorf("unlock: %v", err)
		}
	})
	wg.Wait()
	c.Restart(owner)
	c.AwaitReady()
	return took
}
