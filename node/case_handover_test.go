package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A node that shuts down hands its shards over: the next write succeeds within 300 ms, and the locks it held are free at once.
func TestNode_Shutdown(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for range 6 {
			time.Sleep(20 * time.Second) // until nothing moves any more
			owner := c.AwaitOwner(1)
			s := c.Node((owner + 1) % 3).ShardAt(1)
			mustLock(t, c.Node(owner).ShardAt(1), "l")
			mustPut(t, s, "k", "v")
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() { c.Shutdown(owner) }) // stops when the node is shut down
			c.Await("the end of the ownership", func() bool { return c.Owner(1) != owner })
			mustPut(t, s, "k", "w")
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("write after a shutdown of node %d: took %v, want at most 300ms", owner, took)
			}
			l := mustLock(t, s, "l")
			if took := time.Since(began); took > 600*time.Millisecond {
				t.Errorf("lock of the node that was shut down: took %v, want at most 600ms", took)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			wg.Wait()
			c.Restart(owner)
			c.AwaitReady()
		}
	})
}

// A node that starts again in its directory, on the same boot of its machine, ends the sessions of its former incarnation at once; on
// another boot they run out.
func TestNode_Restart(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		t.Run(map[bool]string{false: "SameBoot", true: "OtherBoot"}[reboot], func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: sessionTTL(20 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
				owner := c.AwaitOwner(1)
				i := (owner + 1) % 3 // maybe the owner of the system shard
				l := mustLock(t, c.Node(i).ShardAt(1), "l")
				c.Kill(i)
				if reboot {
					c.Reboot(i)
				}
				began := time.Now()
				c.Restart(i)
				open := time.Since(began)
				next := mustLock(t, c.Node(owner).ShardAt(1), "l")
				took := time.Since(began)
				if !reboot && took > open+time.Second {
					t.Errorf("lock of the former incarnation: free after %v, of which the start took %v, want it at once", took, open)
				}
				if reboot && took < 10*time.Second {
					t.Errorf("lock of the former incarnation: free after %v, before its session ran out", took)
				}
				if next.Token() <= l.Token() {
					t.Errorf("token: got %d after %d", next.Token(), l.Token())
				}
			})
		})
	}
}

// A node without replicas uses every shard, holds locks there and keeps them over a change of owners.
func TestNode_NoReplicas(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Shards: 2, Config: sessionTTL(8 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
		i := c.Add(func(c *node.Config) { c.NoReplicas = true })
		c.AwaitReady()
		var locks []*node.Lock
		for s := range c.Node(i).Shards() {
			mustPut(t, s, "k", "v")
			if r, err := c.Node(0).ShardAt(s.ID()).Get(t.Context(), "k"); err != nil || string(r.Value) != "v" {
				t.Errorf("shard %d: got %q, %v, want v", s.ID(), r.Value, err)
			}
			if _, ok := s.Owned(); ok {
				t.Errorf("shard %d: owned by a node without replicas", s.ID())
			}
			l := mustLock(t, s, "l")
			c.Track(fmt.Sprint("l in shard ", s.ID()), l)
			locks = append(locks, l)
			if _, err := s.Delete(t.Context(), "k"); err != nil {
				t.Errorf("delete: %v", err)
			}
			_, err := s.Get(t.Context(), "k")
			wantErr(t, "get of a deleted key", err, node.ErrNotFound)
		}
		if len(locks) != 2 {
			t.Fatalf("the node sees %d shards, want 2", len(locks))
		}
		c.Kill(c.AwaitOwner(1))
		time.Sleep(20 * time.Second)
		for k, l := range locks {
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlock in shard %d after the owner was killed: %v", k+1, err)
			}
		}
	})
}

// A node that is cut from the owner alone works on through a third: it writes, reads, locks, and keeps its session.
func TestNode_Relay(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		i := c.Add(func(c *node.Config) { c.NoReplicas = true })
		c.AwaitReady()
		owner := c.AwaitOwner(1)
		s := c.Node(i).ShardAt(1)
		l := mustLock(t, s, "before")
		c.Drop(i, owner)
		for k := range 5 {
			began := time.Now()
			mustPut(t, s, "k", "v")
			if r, err := s.Get(t.Context(), "k"); err != nil || string(r.Value) != "v" {
				t.Errorf("get: got %q, %v, want v", r.Value, err)
			}
			x := mustLock(t, s, "l")
			if err := x.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("round %d took %v", k, took)
			}
			time.Sleep(4 * time.Second)
		}
		if err := l.Check(); err != nil {
			t.Errorf("lock from before the cut: %v", err)
		}
		if now := c.Owner(1); now != owner {
			t.Errorf("the shard moved to node %d: the test tests nothing", now)
		}
	})
}

// Unlock twice, at once from many goroutines, of a zero value and of a lost lock says what the contract says, once nil.
func TestLock_Unlock(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		s := c.Node((owner + 1) % 3).ShardAt(1)
		l := mustLock(t, s, "l")
		var wg sync.WaitGroup
		errs := make(chan error, 10)
		for range 10 {
			wg.Go(func() { errs <- l.Unlock(t.Context()) }) // stops when the lock is given back
		}
		wg.Wait()
		close(errs)
		done := 0
		for err := range errs {
			if err == nil {
				done++
			} else {
				wantErr(t, "unlock beside others", err, node.ErrNotHeld)
			}
		}
		if done != 1 {
			t.Errorf("%d of 10 unlocks at once succeeded, want 1", done)
		}
		wantErr(t, "unlock again", l.Unlock(t.Context()), node.ErrNotHeld)
		wantErr(t, "check of a released lock", l.Check(), node.ErrNotHeld)
		if !isDone(l) {
			t.Error("done of a released lock is open")
		}

		var zero node.Lock
		wantErr(t, "unlock of a zero value", zero.Unlock(t.Context()), node.ErrNotHeld)
		wantErr(t, "check of a zero value", zero.Check(), node.ErrNotHeld)
		if !isDone(&zero) || zero.Token() != 0 {
			t.Errorf("zero value: token %d, want 0 and closed", zero.Token())
		}
		if ctx := zero.Context(t.Context()); !errors.Is(context.Cause(ctx), node.ErrNotHeld) {
			t.Errorf("context of a zero value: got cause %v, want ErrNotHeld", context.Cause(ctx))
		}
		var o node.Ownership
		wantErr(t, "check of a zero ownership", o.Check(), node.ErrNotHeld)
		if o.Shard() != nil || o.Token() != 0 || !isDone(o) {
			t.Errorf("zero ownership: %v, %d, want nil, 0 and closed", o.Shard(), o.Token())
		}
		_, err := s.Guarded(&zero).Put(t.Context(), "k", nil, nil)
		wantErr(t, "put guarded by a zero value", err, node.ErrInvalid)

		lost := mustLock(t, s, "l")
		for _, k := range others(c, (owner+1)%3) {
			c.Drop((owner+1)%3, k)
		}
		<-lost.Done()
		time.Sleep(time.Second)
		wantErr(t, "unlock of a lost lock", lost.Unlock(t.Context()), node.ErrLost)
	})
}
