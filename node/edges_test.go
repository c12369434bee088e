package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A value that the caller changes after its call ended is not what is written, however late it is written.
func TestShard_Put_KeepsNoValue(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		o := c.AwaitOwner(1)
		s := c.Node(o).ShardAt(1)
		mustPut(t, s, "warm", "up")
		c.Isolate(o)
		first := make(chan error, 1)
		go func() {
			_, err := s.Put(within(t, 30*time.Second), "a", []byte("first"), nil)
			first <- err
		}()
		time.Sleep(20 * time.Millisecond)
		value := bytes.Repeat([]byte("A"), 8)
		if _, err := s.Put(within(t, 50*time.Millisecond), "b", value, nil); !errors.Is(err, node.ErrNoQuorum) && !errors.Is(err, node.ErrUnknown) {
			t.Errorf("put behind one in flight: got %v, want not done or unknown", err)
		}
		copy(value, "BBBBBBBB") // the caller uses its buffer again
		c.Heal()
		if err := <-first; err != nil {
			t.Errorf("put in flight: %v", err)
		}
		time.Sleep(3 * time.Second)
		r, err := s.Get(within(t, 10*time.Second), "b")
		if err == nil && string(r.Value) != "AAAAAAAA" || err != nil && !errors.Is(err, node.ErrNotFound) {
			t.Errorf("read: got %q, %v, want what was put or nothing", r.Value, err)
		}
	})
}

// A lock with a session of its own that fails leaves nothing, also at a node that does not own the shard: the next holder gets the lock at once.
func TestShard_Lock_OwnSessionLeavesNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		l := mustLock(t, s, "x")
		if _, err := s.Lock(within(t, time.Second), "x", &node.LockOptions{TTL: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lock behind a holder: got %v, want the end of its ctx", err)
		}
		if _, err := s.TryLock(within(t, time.Second), "x", &node.LockOptions{TTL: time.Hour}); !errors.Is(err, node.ErrHeld) {
			t.Errorf("try lock: got %v, want ErrHeld", err)
		}
		time.Sleep(time.Second)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := s.TryLock(within(t, time.Second), "x", nil)
		if err != nil {
			t.Fatalf("nobody holds the lock: %v", err)
		}
		if err := again.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lock may be released under its own context, which ends with it.
func TestLock_Unlock_UnderItsOwnContext(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		l := mustLock(t, s, "x")
		if err := l.Unlock(l.Context(t.Context())); err != nil {
			t.Errorf("unlock: %v", err)
		}
		if _, err := s.TryLock(within(t, time.Second), "x", nil); err != nil {
			t.Errorf("after the unlock: %v", err)
		}
		x, err := s.Session(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Close(x.Context(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// Locks that time out leave no context behind.
func TestShard_Lock_TimeoutsLeakNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		o := c.AwaitOwner(1)
		s := c.Node(o).ShardAt(1)
		mustLock(t, s, "x")
		before := node.Contexts(c.Node(o), 1)
		for range 50 {
			if _, err := s.Lock(within(t, 50*time.Millisecond), "x", nil); err == nil {
				t.Fatal("a held lock was granted")
			}
		}
		time.Sleep(10 * time.Second)
		if after := node.Contexts(c.Node(o), 1); after > before {
			t.Errorf("contexts at the session: got %d, want %d as before", after, before)
		}
	})
}

// A preferred node that cannot take a shard over, since its disk stalls, does not take it down again and again.
func TestBalancer_StalledPreferredNode(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		time.Sleep(20 * time.Second) // every shard is where it is preferred
		preferred := c.AwaitOwner(1)
		c.MayFail(preferred)
		c.Disk(preferred).Stall()
		s := c.Node(others(c, preferred)[0]).ShardAt(1)
		mustPut(t, s, "k", "takes the shard over")
		for i := range 600 {
			at := time.Now()
			mustPut(t, s, "k", fmt.Sprint(i))
			if took := time.Since(at); took > time.Second {
				t.Errorf("put %d took %v", i, took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.Disk(preferred).Resume()
	})
}

// The lock of a dead node is free after the same time, however often that happened to one owner: lateness does not pile up.
func TestSession_ExpiryDoesNotDrift(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(2 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
		caller := c.Add(func(c *node.Config) { c.NoReplicas = true })
		c.AwaitReady()
		time.Sleep(15 * time.Second)
		for i := range 3 {
			for k := range i {
				c.Delay(i, k, 120*time.Millisecond, 0)
			}
		}
		time.Sleep(5 * time.Second)
		for round := range 10 {
			mustLock(t, c.Node(caller).ShardAt(1), "x")
			o := c.AwaitOwner(1)
			c.Kill(caller)
			at := time.Now()
			next := mustLock(t, c.Node(o).ShardAt(1), "x")
			if took := time.Since(at); took > 4*time.Second {
				t.Errorf("round %d: lock of a dead node free after %v, TTL 2s", round, took)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			c.Restart(caller)
			time.Sleep(2 * time.Second)
		}
	})
}

// A wait that its caller ends, or LockOptions.Wait, says nothing of the owner: what is called next goes to it directly, and at the owner to nobody else.
func TestShard_Lock_EndedWaitCausesNoDetour(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		for _, i := range []int{owner, others(c, owner)[0]} {
			s, third := c.Node(i).ShardAt(1), c.Node(others(c, owner, i)[0])
			l := mustLock(t, s, "x")
			for what, wait := range map[string]func() error{
				"a cancelled ctx": func() error {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					_, err := s.Lock(ctx, "x", nil)
					return err
				},
				"a deadline": func() error { _, err := s.Lock(within(t, time.Second), "x", nil); return err },
				"Wait":       func() error { _, err := s.Lock(t.Context(), "x", &node.LockOptions{Wait: time.Second}); return err },
			} {
				if err := wait(); err == nil {
					t.Fatalf("%s: a held lock was granted", what)
				}
				before := third.Stats().RequestsServed
				for range 50 {
					mustPut(t, s, "k", what)
				}
				if detours := third.Stats().RequestsServed - before; detours > 10 { // renewals and the like are not counted out
					t.Errorf("node %d (owner: %v) after %s: 50 puts caused %d requests at a node that does not own the shard", i, i == owner, what, detours)
				}
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
