package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Watches of a replica that installs a snapshot go on behind what they told, each change once, or end with ErrCompacted where the history is trimmed
// meanwhile, or list anew; never anything old (case 47). The mirrors check the order.
func TestCase047_SnapshotUnderWatch(t *testing.T) {
	for _, history := range []int{100, 100_000} {
		t.Run(fmt.Sprint(history), func(t *testing.T) {
			o := &nodetest.Options{
				Config: func(_ int, c *node.Config) { c.History = history },
				Env:    func(_ int, e *env.Env) { e.SnapshotEntries = 10 },
			}
			bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
				owner := c.AwaitOwner(1)
				i := others(c, owner)[0]
				s, here := c.Node(owner).ShardAt(1), c.Node(i).ShardAt(1)
				mustPut(t, s, "k", "first")
				plain := c.Mirror(here, "k", &node.WatchOptions{Initial: true})
				relists := c.Mirror(here, "k", &node.WatchOptions{Initial: true, Relist: true})
				time.Sleep(time.Second)
				c.Isolate(i)
				const n = 300
				for k := range n {
					mustPut(t, s, fmt.Sprintf("k%d", k%7), fmt.Sprint(k))
				}
				if _, err := s.Delete(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second) // the history is trimmed where it is short
				c.Heal()
				relists.Await(s, "k", 30*time.Second)
				events, synced := plain.Events()
				if kept := history > n; kept && (plain.Err() != nil || events != n+2 || synced != 1) {
					t.Errorf("all is kept: %d events, %v, want %d", events, plain.Err(), n+2)
				} else if !kept && !errors.Is(plain.Err(), node.ErrCompacted) {
					t.Errorf("little is kept: got %d events, %v, want ErrCompacted", events, plain.Err())
				}
				plain.Stop()
				relists.Stop()
			})
		})
	}
}

// However a watch ends, before its first event, in the middle, by break, by a panic of its reader or with its ctx, nothing of it stays, with a replica and
// without (case 152).
func TestCase152_WatchesLeaveNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		for k := range 5 {
			mustPut(t, c.Node(0).ShardAt(1), fmt.Sprint("k", k), "")
		}
		for _, i := range []int{0, remote} {
			s := c.Node(i).ShardAt(1)
			for k := range nightly(500, 10_000) {
				watchOnce(s, k)
			}
			c.Await("the feed to be idle", func() bool { return node.Waited(c.Node(i), 1) == 0 })
		}
	})
}

// watchOnce watches and ends in one of several ways.
func watchOnce(s *node.Shard, way int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() { _ = recover() }()
	if way%5 == 0 {
		cancel()
	}
	time.AfterFunc(time.Millisecond, cancel)
	n := 0
	for range s.Watch(ctx, fmt.Sprint("k", way%7), &node.WatchOptions{Initial: way%2 == 0, Relist: true, Progress: true}) {
		n++
		switch {
		case way%5 == 1 && n == 1, way%5 == 2 && n == 2:
			return
		case way%5 == 3:
			panic("the reader's")
		}
	}
}

// A key that extends the last one of a page by the least byte is on the next page, in both directions.
func TestShard_ListPages_KeyExtendsTheLast(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(c.AwaitOwner(1)).ShardAt(1)
		putMany(t, s, 1001, "")
		mustPut(t, s, "k00998\x00", "") // behind 1000 records, of which one is below
		mustPut(t, s, "k00001\x00", "") // the 1001st from the other end
		for _, reverse := range []bool{false, true} {
			if keys, _ := keysOf(t, s, "k", &node.ListOptions{Reverse: reverse}); len(keys) != 1003 {
				t.Errorf("reverse %v: got %d records, want 1003", reverse, len(keys))
			}
		}
	})
}
