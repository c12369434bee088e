package node_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// use does one of everything in shard 1 on node i.
func use(t *testing.T, c *nodetest.Cluster, i int) {
	t.Helper()
	s := c.Node(i).ShardAt(1)
	rev := mustPut(t, s, "k", "a")
	if _, err := s.CompareAndSwap(t.Context(), "k", rev, []byte("b"), nil); err != nil {
		t.Errorf("node %d: compare and swap: %v", i, err)
	}
	if r, err := s.Get(t.Context(), "k"); err != nil || string(r.Value) != "b" {
		t.Errorf("node %d: get: got %q, %v, want b", i, r.Value, err)
	}
	l := mustLock(t, s, "l")
	if _, err := s.Guarded(l).Put(t.Context(), "g", nil, nil); err != nil {
		t.Errorf("node %d: guarded put: %v", i, err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("node %d: unlock: %v", i, err)
	}
	if _, err := s.Delete(t.Context(), "k"); err != nil {
		t.Errorf("node %d: delete: %v", i, err)
	}
}

// A cluster of old and new binaries works with any of them as the owner, and no replica halts; it writes nothing that the old ones do not
// read until all are new: case 140.
func TestCase140_MixedBinariesWork(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Formats: []uint32{1, 2, 1}}, func(t *testing.T, c *nodetest.Cluster) {
		for owner := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { // stops with ctx; while it runs the shard comes to this node
				_ = c.Node(owner).Own(ctx, nil, func(ctx context.Context, _ node.Ownership) error {
					<-ctx.Done()
					return nil
				})
			})
			c.AwaitOwnedBy(1, owner)
			for i := range 3 {
				use(t, c, i)
			}
			cancel()
			wg.Wait()
		}
		// An old binary still opens every directory.
		for i := range 3 {
			c.Close(i)
			c.Binary(i, 1)
			c.Restart(i)
			c.AwaitReady()
		}
	})
}

// Once all binaries are new the cluster is raised, and goes on. A directory that was in use since is refused to an old binary at Open, with an
// error that says so, and opens again with the new one: case 142.
func TestCase142_OldBinaryIsRefused(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Formats: []uint32{1, 1, 1}}, func(t *testing.T, c *nodetest.Cluster) {
		use(t, c, 0)
		for i := range 3 {
			c.Shutdown(i)
			c.Binary(i, 2)
			c.Restart(i)
			c.AwaitReady()
			use(t, c, i)
		}
		time.Sleep(30 * time.Second) // until the cluster is raised
		for i := range 3 {
			use(t, c, i)
			c.Shutdown(i)
			c.Binary(i, 1)
			err := c.TryRestart(i)
			if !errors.Is(err, node.ErrInvalid) || !strings.Contains(err.Error(), "newer binary") {
				t.Fatalf("start of an old binary in node %d's directory: got %v, want ErrInvalid that asks for the newer binary", i, err)
			}
			c.Binary(i, 2)
			c.Restart(i)
			c.AwaitReady()
			use(t, c, i)
		}
	})
}

// An old binary in a directory that has not heard of the raise stops itself, loudly, when it meets the newer log; its process and the
// other nodes live on, and with the new binary it catches up: cases 140 and 144.
func TestCase144_OldBinaryStopsAtANewLog(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Formats: []uint32{1, 1, 1}}, func(t *testing.T, c *nodetest.Cluster) {
		use(t, c, 0)
		for i := range 3 {
			c.Shutdown(i)
			c.Binary(i, 2)
			c.Restart(i)
			c.AwaitReady()
			if i == 2 {
				c.Isolate(2) // the raise comes while it is cut off
			}
		}
		c.Kill(2)
		c.Heal()
		time.Sleep(30 * time.Second)
		c.Binary(2, 1)
		c.MayFail(2)
		if err := c.TryRestart(2); err == nil {
			n := c.Node(2)
			select {
			case <-n.Done():
			case <-time.After(time.Minute):
				t.Error("an old binary runs on at a newer log")
			}
			if err := n.Err(); err == nil || !strings.Contains(err.Error(), "version") {
				t.Errorf("error of the node that stopped: got %v, want one that names the version", err)
			}
			c.Close(2)
		} else {
			wantErr(t, "start of an old binary", err, node.ErrInvalid)
		}
		use(t, c, 0)
		c.Binary(2, 2)
		c.Restart(2)
		c.AwaitReady()
		use(t, c, 2)
	})
}
