package node_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/nodetest"
)

// fill writes n values of 4 KiB into the shard, many at a time.
func fill(t *testing.T, s *node.Shard, n int) {
	t.Helper()
	value := bytes.Repeat([]byte("v"), 4<<10)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { // stops when its part is written
			for i := w; i < n; i += 4 {
				if _, err := s.Put(within(t, 30*time.Second), fmt.Sprintf("k%d", i), value, nil); err != nil {
					t.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A node that is closed, or killed, while it is sent a snapshot, while it sends one, or while its log is being compacted, ends in time and
// leaves nothing behind, and the replica that was behind catches up after it: case 151.
func TestCase151_CloseDuringSnapshots(t *testing.T) {
	o := &nodetest.Options{
		Delay: 5 * time.Millisecond,
		Env:   func(_ int, e *env.Env) { e.SnapshotEntries = 10 },
	}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		rng := rand.New(rand.NewPCG(3, 151))
		for round := range nightly(3, 100) {
			owner := c.AwaitOwner(1)
			behind := (owner + 1) % 3
			c.Close(behind)
			fill(t, c.Node(owner).ShardAt(1), 160)
			c.Restart(behind)
			time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
			stop := behind
			if round%2 == 1 {
				stop = owner
			}
			if round%3 == 2 {
				c.Kill(stop)
			} else {
				closeNow(t, c.Node(stop))
				c.Close(stop)
			}
			c.Restart(stop)
			c.AwaitReady()
			target := c.Node(owner).Status().Shards[1].Applied
			c.Await("the replica to catch up", func() bool { return c.Node(behind).Status().Shards[1].Applied >= target })
		}
	})
}
