package node_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Records with a TTL that run out together, as they do under a new owner, all go, however large they are: one operation removes 4 MiB at most.
func TestPut_TTLOfLargeRecords(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		s := c.Node(others(c, owner)[0]).ShardAt(1)
		value := make([]byte, 512<<10)
		var writers sync.WaitGroup
		n := underRace(12, 3)
		for k := range n {
			writers.Go(func() { // stops when it is written
				if _, err := s.Put(within(t, 30*time.Second), fmt.Sprintf("k%02d", k), value, &node.PutOptions{TTL: 20 * time.Second}); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		c.Kill(owner)
		time.Sleep(19 * time.Second)
		if keys, _ := keysOf(t, s, "k", &node.ListOptions{KeysOnly: true}); len(keys) != n {
			t.Errorf("after 19 s: %d records, want %d", len(keys), n)
		}
		time.Sleep(6 * time.Second)
		if keys, _ := keysOf(t, s, "k", &node.ListOptions{KeysOnly: true}); len(keys) != 0 {
			t.Errorf("after 25 s: %d records are left of %d that had a TTL of 20 s", len(keys), n)
		}
	})
}

// A Stale listing at a revision that the replica here has not reached is answered by the owner, which has.
func TestShard_Stale_ListOfARevisionAhead(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(i).ShardAt(1).Stale(time.Minute)
		mustPut(t, s, "k", "1")
		if _, err := s.Get(t.Context(), "k"); err != nil { // the replica is known to be fresh
			t.Fatal(err)
		}
		for _, k := range others(c, i) { // only Raft's messages are late: the answer to the write overtakes them
			c.PartitionOneWay(k, i)
		}
		rev := mustPut(t, c.Node(owner).ShardAt(1), "k", "2")
		time.AfterFunc(500*time.Millisecond, c.Heal)
		l, err := s.List(within(t, 20*time.Second), "k", &node.ListOptions{At: rev})
		if err != nil {
			t.Fatalf("at revision %d: %v", rev, err)
		}
		for r, err := range l.All() {
			if err != nil || string(r.Value) != "2" {
				t.Errorf("at revision %d: got %q, %v, want 2", rev, r.Value, err)
			}
		}
		_, err = s.List(within(t, 20*time.Second), "k", &node.ListOptions{At: rev + 100})
		wantErr(t, "beyond the shard's revision", err, node.ErrInvalid)
	})
}
