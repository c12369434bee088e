package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// caller adds a node without replicas.
func caller(c *nodetest.Cluster) int {
	i := c.Add(func(c *node.Config) { c.NoReplicas = true })
	c.AwaitReady()
	return i
}

// lockFor takes a lock under a session of its own.
func lockFor(t *testing.T, s *node.Shard, name string, ttl time.Duration) *node.Lock {
	t.Helper()
	l, err := s.Lock(within(t, time.Minute), name, &node.LockOptions{TTL: ttl})
	if err != nil {
		t.Fatalf("lock %q: %v", name, err)
	}
	return l
}

// stopMajority pauses all replicas of a cluster of three but the shard's owner, so that nothing is committed, and resumes them after d.
func stopMajority(c *nodetest.Cluster, owner int, d time.Duration) {
	for _, i := range []int{(owner + 1) % 3, (owner + 2) % 3} {
		c.Pause(i)
		defer c.Resume(i)
	}
	time.Sleep(d)
}

// A session whose first renewals fail, whatever makes them, and whose shard heals within the TTL, survives; its node can open new ones, and
// the failures are counted: case 4.
func TestCase004_FirstRenewalsFail(t *testing.T) {
	const ttl = 8 * time.Second
	for _, tt := range []struct {
		name string
		fail func(c *nodetest.Cluster, owner, holder int)
	}{
		{"Unanswered", func(c *nodetest.Cluster, _, holder int) {
			c.Isolate(holder)
			time.Sleep(ttl / 2)
			c.Heal()
		}},
		{"AnswersLost", func(c *nodetest.Cluster, _, holder int) {
			for _, i := range others(c, holder) {
				c.PartitionOneWay(i, holder)
			}
			time.Sleep(ttl / 2)
			c.Heal()
		}},
		{"Rejected", func(c *nodetest.Cluster, _, holder int) {
			for _, i := range others(c, holder) {
				c.Reject(i, holder)
			}
			time.Sleep(ttl / 2)
			c.Heal()
		}},
		{"NotCommitted", func(c *nodetest.Cluster, owner, _ int) { stopMajority(c, owner, ttl/2) }},
		{"OwnerGone", func(c *nodetest.Cluster, owner, _ int) {
			c.Kill(owner)
			time.Sleep(ttl / 2)
			c.Restart(owner)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
				holder := caller(c)
				owner := c.AwaitOwner(1)
				s := c.Node(holder).ShardAt(1)
				l := lockFor(t, s, "l", ttl)
				tt.fail(c, owner, holder)
				time.Sleep(2 * ttl)
				if err := l.Check(); err != nil || isDone(l) {
					t.Errorf("lock after renewals failed for half its TTL: %v, done %v", err, isDone(l))
				}
				if st := c.Node(holder).Stats(); st.RenewalsFailed == 0 || st.HoldsLost != 0 {
					t.Errorf("got %+v, want failed renewals and no loss", st.SessionStats)
				}
				if err := lockFor(t, s, "new", ttl).Unlock(t.Context()); err != nil {
					t.Errorf("unlock: %v", err)
				}
			})
		})
	}
}

// While nothing can be committed for less than the TTL and a renewal interval no lock of many is lost; when it is longer all are, each told so
// by its own clock within its TTL: case 5.
func TestCase005_OutageOfTheMajority(t *testing.T) {
	const ttl, count = 5 * time.Second, 20
	for _, tt := range []struct {
		name   string
		outage time.Duration
		lost   bool
	}{{"Short", 2 * time.Second, false}, {"Long", 2 * ttl, true}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
				holder := caller(c)
				n := c.Node(holder)
				var locks []*node.Lock
				for i := range count {
					locks = append(locks, lockFor(t, n.ShardAt(1), fmt.Sprint("l", i), ttl))
					c.Track(fmt.Sprint("l", i), locks[i])
				}
				time.Sleep(2 * ttl)
				began := time.Now()
				told := make(chan time.Duration, count)
				for _, l := range locks {
					go func() { // stops when the lock is lost, or given back at the end
						<-l.Done()
						told <- time.Since(began)
					}()
				}
				stopMajority(c, c.AwaitOwner(1), tt.outage)
				time.Sleep(3 * ttl)
				want := uint64(0)
				if tt.lost {
					want = count
				}
				if st := n.Stats(); st.HoldsLost != want || st.SessionsLost != want {
					t.Errorf("lost: got %d holds, %d sessions, want %d", st.HoldsLost, st.SessionsLost, want)
				}
				for i, l := range locks {
					if err := l.Check(); tt.lost != errors.Is(err, node.ErrLost) {
						t.Errorf("lock %d: %v", i, err)
					}
					if tt.lost {
						if d := <-told; d > ttl+ownerLease { // so long its owner renewed it, with a lease that was good
							t.Errorf("told after %v, want at most %v", d, ttl+ownerLease)
						}
					} else if err := l.Unlock(t.Context()); err != nil {
						t.Errorf("unlock: %v", err)
					}
				}
			})
		})
	}
}

// A lock that was lost and is taken anew in the same process is renewed as the first one was, again and again, and nothing is left of the lost
// one: case 12.
func TestCase012_RenewedAfterALoss(t *testing.T) {
	const ttl = 2 * time.Second
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("OwnSession=%v", own), func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
				holder := caller(c)
				n := c.Node(holder)
				o := &node.LockOptions{}
				if own {
					o.TTL = ttl
				}
				for round := range nightly(5, 20) {
					l, err := n.ShardAt(1).Lock(within(t, time.Minute), "l", o)
					if err != nil {
						t.Fatalf("round %d: lock: %v", round, err)
					}
					c.Track("l", l)
					time.Sleep(3 * ttl)
					if err := l.Check(); err != nil {
						t.Fatalf("round %d: not renewed: %v", round, err)
					}
					c.Isolate(holder)
					wantDone(t, "lock", l, time.Now(), ttl)
					c.Heal()
					synctest.Wait() // Done comes before what is counted
					if st := n.Stats(); st.Sessions != 0 || st.Holds != 0 || st.HoldsLost != uint64(round+1) {
						t.Fatalf("round %d: after the loss: got %+v, want nothing left", round, st.SessionStats)
					}
				}
			})
		})
	}
}

// A lost handle stays lost and is no obstacle: to lock the same name again works on the same shard, with a larger token. It never lives again,
// whoever had the lock meanwhile, and what is asked with it or its session changes nothing: cases 24 and 26.
func TestCase024_LostHandleIsFinal(t *testing.T) {
	const ttl = 2 * time.Second
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		holder := caller(c)
		s, b := c.Node(holder).ShardAt(1), c.Node(c.AwaitOwner(1)).ShardAt(1)
		x, err := s.Session(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.In(x).Lock(t.Context(), "l", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Track("l", old)
		c.Isolate(holder)
		wantDone(t, "lock", old, time.Now(), ttl)
		between := mustLock(t, b, "l") // expired at the owner, held by another, and given back
		c.Track("l", between)
		if err := between.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Heal()
		next := mustLock(t, s, "l")
		c.Track("l", next)
		if old.Token() >= between.Token() || between.Token() >= next.Token() {
			t.Errorf("tokens: got %d, %d, %d, want them to rise", old.Token(), between.Token(), next.Token())
		}
		time.Sleep(2 * ttl)
		for what, err := range map[string]error{
			"check": old.Check(), "unlock": old.Unlock(t.Context()), "check session": x.Check(), "close session": x.Close(t.Context()),
		} {
			wantErr(t, what+" of the lost one", err, node.ErrLost)
		}
		_, err = s.In(x).Lock(t.Context(), "m", nil)
		wantErr(t, "lock in the lost session", err, node.ErrLost)
		_, err = s.In(x).Put(t.Context(), "k", nil, nil)
		wantErr(t, "put in the lost session", err, node.ErrLost)
		_, err = s.Guarded(old).Put(t.Context(), "k", nil, nil)
		wantErr(t, "put guarded by the lost lock", err, node.ErrFenced)
		if err := next.Check(); err != nil {
			t.Errorf("check of the next: %v", err)
		}
		_, err = b.TryLock(t.Context(), "l", nil)
		wantErr(t, "try lock elsewhere", err, node.ErrHeld)
	})
}

// Renewals that are accepted, but whose answers come after the deadline, revive nothing: a leadership that was told lost stays lost, and the
// next campaign has a new token: case 36.
func TestCase036_LateRenewalRevivesNothing(t *testing.T) {
	const ttl = 3 * time.Second
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
		holder := caller(c)
		s := c.Node(holder).ShardAt(1)
		l, err := s.Campaign(t.Context(), "e", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Track("e", l)
		l2 := mustLock(t, s, "l")
		c.Track("l", l2)
		time.Sleep(ttl)
		for _, i := range others(c, holder) {
			c.Delay(i, holder, ttl*3/4, 0) // there and back it takes longer than the TTL
		}
		ctx := l.Context(t.Context())
		wantDone(t, "leadership", l, time.Now(), ttl)
		if got := context.Cause(ctx); !errors.Is(got, node.ErrLost) {
			t.Errorf("cause: got %v, want ErrLost", got)
		}
		for range 40 { // answers to renewals that were sent in time come in
			time.Sleep(ttl / 10)
			if l.Check() == nil || l2.Check() == nil || !isDone(l) || !isDone(l2) {
				t.Fatalf("checks after the loss: %v, %v", l.Check(), l2.Check())
			}
		}
		c.Heal()
		next, err := s.Campaign(within(t, time.Minute), "e", nil)
		if err != nil || next.Token() <= l.Token() {
			t.Fatalf("next campaign: %v, token %d after %d", err, next.Token(), l.Token())
		}
		c.Track("e", next)
		time.Sleep(ttl)
	})
}
