package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/nodetest"
)

// readSlowly reads listings, locks and changes of the shard until ctx ends, by several readers that wait 5 s after what they get first, with
// what they read from open.
func readSlowly(ctx context.Context, t *testing.T, s *node.Shard, wg *sync.WaitGroup) {
	wait := func() {
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}
	for range 3 {
		wg.Go(func() { // stops when ctx ends
			for ctx.Err() == nil {
				l, err := s.List(ctx, "k", nil)
				if err != nil {
					continue // the time between owners
				}
				for range l.All() {
					wait()
					break
				}
				for range l.All() {
				}
			}
		})
		wg.Go(func() { // stops when ctx ends
			for ctx.Err() == nil {
				for range s.Locks(ctx, "") {
					wait()
				}
			}
		})
		wg.Go(func() { // stops when ctx ends
			for ctx.Err() == nil {
				for range s.Watch(ctx, "k", &node.WatchOptions{Initial: true, Relist: true}) {
					wait()
				}
			}
		})
	}
}

// Sessions of 2 s are renewed while the state is snapshotted again and again, the log and the history are cut, listings, locks and changes are read
// slowly, and a replica installs a snapshot over a slow network: none is lost, no renewal fails, and nobody else becomes the owner: case 11.
func TestCase011_MaintenanceHoldsUpNoRenewal(t *testing.T) {
	const ttl = 2 * time.Second
	o := &nodetest.Options{
		Delay: 5 * time.Millisecond,
		Env:   func(_ int, e *env.Env) { e.SnapshotEntries = 10 },
		Config: func(_ int, c *node.Config) {
			c.SessionTTL, c.History = ttl, 100
		},
	}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		holder := caller(c)
		owner := c.AwaitOwner(1)
		behind := (owner + 1) % 3
		s := c.Node(owner).ShardAt(1)
		ownership, _ := s.Owned()
		fill(t, s, 160)
		var holds []node.Hold
		for _, i := range []int{holder, owner} {
			for k := range 5 {
				l := lockFor(t, c.Node(i).ShardAt(1), fmt.Sprint("l", i, k), ttl)
				c.Track(fmt.Sprint("lock ", i, k), l)
				holds = append(holds, l)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, i := range []int{holder, owner} {
			readSlowly(ctx, t, c.Node(i).ShardAt(1), &wg)
		}
		for range nightly(2, 50) {
			c.Close(behind)
			fill(t, s, 160)
			c.Delay(owner, behind, 100*time.Millisecond, 50*time.Millisecond)
			c.Restart(behind)
			target := c.Node(owner).Status().Shards[1].Applied
			restarted := time.Now()
			c.Await("the replica to catch up", func() bool {
				st := c.Node(behind).Status()
				return len(st.Shards) > 1 && st.Shards[1].Applied >= target
			})
			t.Logf("caught up in %v", time.Since(restarted))
			c.Heal()
			time.Sleep(10 * time.Second)
		}
		cancel()
		wg.Wait()
		for i, h := range holds {
			if err := h.Check(); err != nil {
				t.Errorf("hold %d: %v", i, err)
			}
		}
		for _, i := range []int{holder, owner} {
			if st := c.Node(i).Stats(); st.SessionsLost != 0 || st.RenewalsFailed != 0 || st.Sessions < 5 {
				t.Errorf("node %d: got %d sessions, %d lost, %d renewals failed, want 5, 0, 0", i, st.Sessions, st.SessionsLost, st.RenewalsFailed)
			}
		}
		if now, ok := s.Owned(); !ok || now.Token() != ownership.Token() {
			t.Errorf("the shard has another owner: token %d, want %d", now.Token(), ownership.Token())
		}
	})
}
