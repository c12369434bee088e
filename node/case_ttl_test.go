package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// outlasted is the longest that a lock is held after its holder's last renewal: the TTL on the slowest clock that is allowed for.
func outlasted(ttl time.Duration) time.Duration { return ttl + ttl/99 + 1 }

// freeAfter waits for the lock at s and gives it back. It returns how long that took since.
func freeAfter(t *testing.T, c *nodetest.Cluster, s *node.Shard, name string, since time.Time) time.Duration {
	t.Helper()
	l, err := s.Lock(within(t, 5*time.Minute), name, &node.LockOptions{TTL: time.Minute})
	took := time.Since(since)
	if err != nil {
		t.Errorf("lock %q after its holder's death: %v", name, err)
		return took
	}
	c.Track(name, l)
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("unlock: %v", err)
	}
	return took
}

// A killed holder's lock is granted to the next between 0.75 TTL (its last renewal was sent up to a quarter of the TTL before, and a renewal
// tick) and 1/0.99 TTL after, and the messages of a grant; with a Grace that much later, with none at once: whatever the TTL and the moment. It
// is never granted earlier than a TTL after the last renewal: case 6.
func TestCase006_TTLIsABound(t *testing.T) {
	const grant = 30 * time.Millisecond // renewal, entry and answer on a network of 1 ms
	ttls := []time.Duration{1500 * time.Millisecond, 3 * time.Second, 5 * time.Second}
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		rng := rand.New(rand.NewPCG(1, 6))
		holder := caller(c)
		for run := range nightly(24, 200) {
			ttl, grace := ttls[run/4%3], time.Duration(run%2)*2*time.Second
			next := c.Node(c.AwaitOwner(1)).ShardAt(1)
			name := fmt.Sprint("l", run)
			l, err := c.Node(holder).ShardAt(1).Lock(t.Context(), name, &node.LockOptions{TTL: ttl, Grace: grace})
			if err != nil {
				t.Fatal(err)
			}
			c.Track(name, l) // an isolated holder trusts it to the last moment
			time.Sleep(ttl + time.Duration(rng.Int64N(int64(ttl))))
			began := time.Now()
			if isolated := run%4 < 2; isolated {
				c.Isolate(holder)
			} else {
				c.Kill(holder)
			}
			took := freeAfter(t, c, next, name, began)
			low, high := ttl-ttl/4-60*time.Millisecond+grace, outlasted(ttl)+grant
			if grace > 0 {
				high += outlasted(grace) + grant
			}
			if took < low || took > high {
				t.Errorf("run %d: TTL %v, grace %v: granted after %v, want %v to %v", run, ttl, grace, took, low, high)
			}
			if c.Heal(); c.Node(holder) == nil {
				c.Restart(holder)
			}
			c.AwaitReady()
		}
	})
}

// A dead holder's lock is free within its TTL and the allowance for failovers, 2 TTLs, however often the shard changes hands meanwhile, in
// order or without a release, and at the first, second and third failover alike; a restart of all nodes counts as one more: case 2.
func TestCase002_FailoversDoNotRestartTheTTL(t *testing.T) {
	const ttl = 3 * time.Second
	everySecond := func(t *testing.T, c *nodetest.Cluster, move func(n *node.Node, to string), free <-chan time.Duration) {
		for k := range 20 {
			select {
			case d := <-free:
				t.Logf("free after %v and %d transfers", d, k)
				return
			case <-time.After(time.Second):
			}
			if i := c.Owner(1); i >= 0 {
				move(c.Node(i), c.Node((i+1)%3).ID())
			}
		}
		t.Logf("free after %v, with all transfers", <-free)
	}
	for _, tt := range []struct {
		name  string
		limit time.Duration
		fail  func(t *testing.T, c *nodetest.Cluster, free <-chan time.Duration)
	}{
		{"HandedOver", ttl + ttl/2, func(t *testing.T, c *nodetest.Cluster, free <-chan time.Duration) {
			everySecond(t, c, func(n *node.Node, to string) { node.HandOver(n, 1, to) }, free)
		}},
		{"Deposed", 3 * ttl, func(t *testing.T, c *nodetest.Cluster, free <-chan time.Duration) {
			everySecond(t, c, func(n *node.Node, to string) { node.Depose(n, 1, to) }, free)
		}},
		{"ThreeKills", 3*ttl + 3*4*time.Second, func(t *testing.T, c *nodetest.Cluster, free <-chan time.Duration) {
			for range 3 {
				i := c.AwaitOwner(1)
				c.Kill(i)
				c.Restart(i)
				c.AwaitOwner(1)
			}
			<-free
		}},
		{"AllRestarted", 2*ttl + 2*4*time.Second, func(t *testing.T, c *nodetest.Cluster, free <-chan time.Duration) {
			for i := range 3 {
				c.Kill(i)
			}
			for i := range 3 {
				c.Restart(i)
			}
			<-free
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
				holder := caller(c)
				waiter := c.Node(caller(c)).ShardAt(1)
				lockFor(t, c.Node(holder).ShardAt(1), "l", ttl)
				for round := range 3 {
					time.Sleep(ttl + time.Duration(round)*ttl/12) // at a moment between two renewals
					took := dieAndFail(t, c, holder, waiter, func(free <-chan time.Duration) { tt.fail(t, c, free) })
					if took > tt.limit || took < ttl-ttl/4-60*time.Millisecond {
						t.Errorf("round %d: granted after %v, want %v to %v", round, took, ttl-ttl/4, tt.limit)
					}
					c.Restart(holder)
					c.AwaitReady()
					time.Sleep(5 * time.Second)
					lockFor(t, c.Node(holder).ShardAt(1), "l", ttl)
				}
			})
		})
	}
}

// dieAndFail kills the holder of a lock, and what fail does while waiter waits for it. It returns how long that was.
func dieAndFail(t *testing.T, c *nodetest.Cluster, holder int, waiter *node.Shard, fail func(free <-chan time.Duration)) time.Duration {
	killed := time.Now()
	c.Kill(holder)
	free, done := make(chan time.Duration, 1), make(chan time.Duration)
	go func() { // stops when the lock is granted
		took := freeAfter(t, c, waiter, "l", killed)
		free <- took
		done <- took
	}()
	fail(free)
	return <-done
}

// Gossip's verdict that a node has failed ends nothing: a holder that is cut off until all others think so, for less than its TTL, keeps its
// session and what hangs on it: case 7.
func TestCase007_GossipEndsNoSession(t *testing.T) {
	const ttl = 30 * time.Second
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for _, owns := range []bool{false, true} {
			owner := c.AwaitOwner(1)
			holder := owner
			if !owns {
				holder = (owner + 1) % 3
			}
			l := lockFor(t, c.Node(holder).ShardAt(1), "l", ttl)
			c.Track("l", l)
			id, began := c.Node(holder).ID(), time.Now()
			c.Isolate(holder)
			c.Await("a verdict of gossip", func() bool {
				for _, i := range others(c, holder) {
					for m := range c.Node(i).Members() {
						if m.ID == id && m.State == node.MemberAlive {
							return false
						}
					}
				}
				return true
			})
			if d := 5*time.Second - time.Since(began); d > 0 {
				time.Sleep(d)
			}
			if d := time.Since(began); d > ttl/2 {
				t.Fatalf("gossip took %v: the test tests nothing", d)
			}
			c.Heal()
			time.Sleep(2 * ttl)
			if err := l.Check(); err != nil || isDone(l) {
				t.Errorf("owner %v: lock after a verdict of gossip: %v", owns, err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
	})
}

// Each hold goes by its own TTL, whatever the others' and their nodes' settings: one with a long TTL outlives a silence that ends one with a
// short TTL, for which no candidate's own TTL counts: case 39.
func TestCase039_MixedTTLs(t *testing.T) {
	o := &nodetest.Options{Config: func(i int, c *node.Config) {
		c.SessionTTL = []time.Duration{time.Second, 5 * time.Second, time.Hour}[i%3]
	}}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		const long, short = 10 * time.Second, 1500 * time.Millisecond
		holder := caller(c)
		s := c.Node(holder).ShardAt(1)
		keeps, loses := lockFor(t, s, "long", long), lockFor(t, s, "short", short)
		c.Track("long", keeps)
		c.Track("short", loses)
		time.Sleep(long)
		cut := time.Now()
		c.Isolate(holder)
		next := c.Node(c.AwaitOwner(1)).ShardAt(1)
		if took := freeAfter(t, c, next, "short", cut); took > outlasted(short)+50*time.Millisecond {
			t.Errorf("the short lock was free after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), long/2)
		defer cancel()
		if l, err := next.Lock(ctx, "long", &node.LockOptions{TTL: time.Second}); err == nil {
			t.Errorf("a candidate with a short TTL got the lock of a holder with a long one: token %d", l.Token())
		}
		c.Heal()
		time.Sleep(2 * long)
		if keeps.Check() != nil || loses.Check() == nil {
			t.Errorf("checks: long %v, short %v", keeps.Check(), loses.Check())
		}
	})
}
