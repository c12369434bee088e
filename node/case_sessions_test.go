package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// An owner that hangs and comes back ends no session that was renewed at the owner after it: case 1.
func TestCase001_StalledOwnerExpiresNothing(t *testing.T) {
	for _, tt := range []struct {
		name       string
		hang, wake func(c *nodetest.Cluster, i int)
	}{
		{"Disk", func(c *nodetest.Cluster, i int) { c.Disk(i).Stall() }, func(c *nodetest.Cluster, i int) { c.Disk(i).Resume() }},
		{"Process", (*nodetest.Cluster).Pause, (*nodetest.Cluster).Resume},
		{"Network", (*nodetest.Cluster).Isolate, func(c *nodetest.Cluster, _ int) { c.Heal() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The TTL outlasts a failover; the hang outlasts the TTL.
			bubble(t, 3, &nodetest.Options{Config: sessionTTL(8 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
				for range 5 {
					c.Add(func(c *node.Config) { c.NoReplicas = true })
				}
				c.AwaitReady()
				for round := range 2 {
					owner := c.AwaitOwner(1)
					holders := others(c, owner)
					var locks []*node.Lock
					for _, i := range holders {
						locks = append(locks, mustLock(t, c.Node(i).ShardAt(1), fmt.Sprintf("l%d-%d", round, i)))
					}
					tt.hang(c, owner)
					mustPut(t, c.Node(holders[0]).ShardAt(1), "k", "v") // a hanging disk shows only when something is written
					time.Sleep(20 * time.Second)
					if next := c.Owner(1); next == owner || next < 0 {
						t.Fatalf("owner while node %d hangs: got %d, want another", owner, next)
					}
					tt.wake(c, owner)
					time.Sleep(10 * time.Second)
					for k, l := range locks {
						if err := l.Check(); err != nil || isDone(l) {
							t.Errorf("lock of node %d after the former owner came back: %v", holders[k], err)
						}
						if err := l.Unlock(t.Context()); err != nil {
							t.Errorf("unlock: %v", err)
						}
					}
				}
			})
		})
	}
}

// A holder hears of its loss by its own clock within the TTL, whatever cuts it off and whether or not it owns the shard, without any
// answer from the network: case 3.
func TestCase003_LossIsToldByTheLocalClock(t *testing.T) {
	const ttl = 3 * time.Second
	for _, tt := range []struct {
		name string
		cut  func(c *nodetest.Cluster, i int)
	}{
		{"BlackHole", (*nodetest.Cluster).Isolate},
		{"Pause", (*nodetest.Cluster).Pause},
		{"NothingGoesOut", func(c *nodetest.Cluster, i int) {
			for _, k := range others(c, i) {
				c.PartitionOneWay(i, k)
			}
		}},
		{"NothingComesIn", func(c *nodetest.Cluster, i int) {
			for _, k := range others(c, i) {
				c.PartitionOneWay(k, i)
			}
		}},
		{"Rejected", func(c *nodetest.Cluster, i int) {
			for _, k := range others(c, i) {
				c.Reject(i, k)
			}
		}},
		{"Suspend", func(c *nodetest.Cluster, i int) { c.StepClock(i, ttl) }},
	} {
		for _, at := range []string{"Owner", "Other"} {
			t.Run(tt.name+at, func(t *testing.T) {
				bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
					i, limit := c.AwaitOwner(1), ttl+ownerLease
					if at == "Other" {
						i, limit = (i+1)%3, ttl // an owner renews its own sessions as long as its lease lasts
					}
					l := mustLock(t, c.Node(i).ShardAt(1), "l")
					c.Track("l", l)
					time.Sleep(5 * time.Second)
					ctx := l.Context(t.Context())
					cut := time.Now()
					tt.cut(c, i)
					wantDone(t, "lock", l, cut, limit)
					if got := context.Cause(ctx); !errors.Is(got, node.ErrLost) {
						t.Errorf("cause of the lock's context: got %v, want ErrLost", got)
					}
					next, err := c.Node((i+1)%3).ShardAt(1).Lock(within(t, time.Minute), "l", nil)
					if err != nil {
						t.Fatalf("lock elsewhere: %v", err)
					}
					c.Track("l", next)
				})
			})
		}
	}
}

// A waiter whose own session ended while it queued is told so and never that it has the lock; the one behind gets it at once: case 14.
func TestCase014_NoGrantToADeadWaiter(t *testing.T) {
	const ttl = 3 * time.Second
	for _, tt := range []struct {
		name string
		held time.Duration // how long the holder keeps the lock after the waiter was cut off
		free time.Duration // how long after that the next may have to wait
	}{
		{"SessionEndedBeforeUnlock", 2 * ttl, 100 * time.Millisecond},
		{"SessionEndsAfterUnlock", ttl / 2, ttl},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
				owner := c.AwaitOwner(1)
				b := (owner + 1) % 3
				third := c.Node((owner + 2) % 3).ShardAt(1)
				l := mustLock(t, c.Node(owner).ShardAt(1), "l")
				c.Track("l", l)
				dead := make(chan error, 1)
				go func() { // stops when node b's session is lost
					x, err := c.Node(b).ShardAt(1).Lock(t.Context(), "l", nil)
					if err == nil {
						c.Track("l", x)
					}
					dead <- err
				}()
				time.Sleep(time.Second)
				type got struct {
					l   *node.Lock
					err error
				}
				next := make(chan got, 1)
				go func() { // stops when the lock is granted
					l, err := third.Lock(t.Context(), "l", nil)
					next <- got{l, err}
				}()
				time.Sleep(time.Second)
				c.Pause(b)
				cut := time.Now()
				time.Sleep(tt.held)
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatalf("unlock: %v", err)
				}
				freed := time.Now()
				g := <-next
				if took := time.Since(freed); g.err != nil || took > tt.free {
					t.Errorf("lock behind a dead waiter: %v after %v, want it within %v", g.err, took, tt.free)
				} else {
					c.Track("l", g.l)
				}
				wantErr(t, "lock of the dead waiter", <-dead, node.ErrLost)
				if took := time.Since(cut); took > max(ttl, tt.held+tt.free) {
					t.Errorf("the dead waiter was told after %v, want at most %v", took, ttl)
				}
				c.Resume(b)
				time.Sleep(ttl)
			})
		})
	}
}

// A holder that was paused, and whose clock hid the pause from it, is kept out by its token alone: its guarded write in the cluster and its
// write to a guarded resource are refused. Where the clock shows the pause, it is told before anything else succeeds: case 15.
func TestCase015_PausedHolderIsFenced(t *testing.T) {
	const ttl = 3 * time.Second
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprintf("Hidden=%v", hidden), func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
				owner := c.AwaitOwner(1)
				a, b := (owner+1)%3, (owner+2)%3
				sa, sb := c.Node(a).ShardAt(1), c.Node(b).ShardAt(1)
				res := c.Resource()
				la := mustLock(t, sa, "l")
				if err := errors.Join(res.Write(la.Token(), "a")); err != nil {
					t.Fatal(err)
				}
				if _, err := sa.Guarded(la).Put(t.Context(), "k", []byte("a"), nil); err != nil {
					t.Fatalf("guarded put of the holder: %v", err)
				}
				if hidden {
					c.Freeze(a)
				}
				c.Pause(a)
				time.Sleep(5 * time.Second)
				lb := mustLock(t, sb, "l")
				if lb.Token() <= la.Token() {
					t.Errorf("token of the next grant: got %d after %d", lb.Token(), la.Token())
				}
				if _, err := sb.Guarded(lb).Put(t.Context(), "k", []byte("b"), nil); err != nil {
					t.Fatalf("guarded put of the next holder: %v", err)
				}
				if err := res.Write(lb.Token(), "b"); err != nil {
					t.Fatal(err)
				}
				if err := la.Check(); hidden != (err == nil) {
					t.Errorf("check of the paused holder: got %v, hidden pause: %v", err, hidden)
				}
				c.Resume(a)
				_, err := sa.Guarded(la).Put(within(t, 20*time.Second), "k", []byte("late"), nil)
				wantErr(t, "guarded put of the paused holder", err, node.ErrFenced)
				wantErr(t, "write to the resource of the paused holder", res.Write(la.Token(), "late"), node.ErrFenced)
				if r, err := sb.Get(t.Context(), "k"); err != nil || string(r.Value) != "b" || res.Value() != "b" {
					t.Errorf("got %q, %v and %q at the resource, want b", r.Value, err, res.Value())
				}
				c.Thaw(a)
			})
		})
	}
}

// An Unlock whose answer was lost, and which is tried again after the same process locked anew, does not touch the new hold: case 17.
func TestCase017_LateUnlockLeavesTheNewHold(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		a, b := (owner+1)%3, (owner+2)%3
		s := c.Node(a).ShardAt(1)
		old := mustLock(t, s, "l")
		c.Track("l", old)
		for _, i := range []int{owner, b} {
			c.PartitionOneWay(i, a)
		}
		wantErr(t, "unlock without an answer", old.Unlock(within(t, 300*time.Millisecond)), node.ErrUnknown)
		wantErr(t, "check of a hold whose unlock was sent", old.Check(), node.ErrNotHeld)
		c.Heal()
		l, err := c.Node(b).ShardAt(1).TryLock(t.Context(), "l", nil)
		if err != nil {
			t.Fatalf("the unlock was not done: %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatalf("unlock: %v", err)
		}
		fresh := mustLock(t, s, "l")
		if err := old.Unlock(t.Context()); err != nil && !errors.Is(err, node.ErrNotHeld) {
			t.Errorf("old unlock again: got %v, want nil or ErrNotHeld", err)
		}
		if err := fresh.Check(); err != nil {
			t.Errorf("check of the new hold: %v", err)
		}
		_, err = c.Node(b).ShardAt(1).TryLock(t.Context(), "l", nil)
		wantErr(t, "try lock elsewhere", err, node.ErrHeld)
		wantErr(t, "check of the old hold", old.Check(), node.ErrNotHeld)
	})
}

// A Lock that was cancelled at any instant leaves no hold behind without a handle: what was granted is free within a renewal interval:
// case 20.
func TestCase020_CancelledLockLeavesNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		a, b := c.Node((owner+1)%3).ShardAt(1), c.Node((owner+2)%3).ShardAt(1)
		rng := rand.New(rand.NewPCG(1, 20))
		cancelled := 0
		for k := range nightly(200, 10_000) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(8*time.Millisecond))))
			l, err := a.Lock(ctx, "l", nil)
			cancel()
			if err == nil {
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatalf("round %d: unlock: %v", k, err)
				}
				continue
			}
			cancelled++
			next, err := b.Lock(within(t, 5*time.Second/4), "l", nil)
			if err != nil {
				t.Fatalf("round %d: lock elsewhere after a cancelled lock: %v", k, err)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Fatalf("round %d: unlock: %v", k, err)
			}
		}
		if cancelled == 0 {
			t.Error("no lock was cancelled: the test tests nothing")
		}
	})
}

// A silent drop is heard of within the TTL after the last renewal, to 100 ms, and not much earlier, by a lock and by an ownership alike:
// case 23.
func TestCase023_SilentDropIsHeardInTime(t *testing.T) {
	const ttl = 3 * time.Second
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
		rng := rand.New(rand.NewPCG(1, 23))
		for round := range 8 {
			owner := c.AwaitOwner(1)
			i := (owner + round%2) % 3 // the owner in turn with another
			l := mustLock(t, c.Node(i).ShardAt(1), "l")
			c.Track("l", l)
			time.Sleep(2*time.Second + time.Duration(rng.Int64N(int64(time.Second))))
			o, owned := c.Node(i).ShardAt(1).Owned()
			began := time.Now()
			for _, k := range others(c, i) {
				c.Drop(i, k)
			}
			limit := ttl
			if owned {
				wantDone(t, "ownership", o, began, ownerLease)
				limit += ownerLease // so long it renews its own sessions
			}
			if took := wantDone(t, "lock", l, began, limit); took < ttl/2 {
				t.Errorf("lock: lost after %v of a TTL of %v", took, ttl)
			}
			c.Heal()
			c.AwaitReady()
		}
	})
}
