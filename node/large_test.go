package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// One revision that is larger than what one answer may have, such as the end of a session with large ephemeral records, is told
// everywhere, whole and once, and so is what follows.
func TestShard_Watch_LargeRevision(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		s := c.Node(c.AwaitOwner(1)).ShardAt(1)
		var mirrors []*nodetest.Mirror
		for _, i := range []int{0, remote} {
			mirrors = append(mirrors, c.Mirror(c.Node(i).ShardAt(1), "k", &node.WatchOptions{Initial: true}))
		}
		x, err := s.Session(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		n := underRace(17, 4) // of 512 KiB: more than the 8 MiB that an answer may have
		for k := range n {
			if _, err := s.In(x).Put(t.Context(), fmt.Sprintf("k%02d", k), make([]byte, 512<<10), &node.PutOptions{Ephemeral: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "k-last", "")
		for i, m := range mirrors {
			m.Await(s, "k", 20*time.Second)
			if events, _ := m.Events(); events != 2*n+1 {
				t.Errorf("mirror %d: %d events, want %d", i, events, 2*n+1)
			}
			m.Stop()
		}
	})
}

// A node without a replica that follows one which has lost its majority goes over to one that has not, within seconds (case 55).
func TestCase055_SourceWithoutMajority(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		for lost := range 3 {
			m := c.Mirror(c.Node(remote).ShardAt(1), "k", &node.WatchOptions{Initial: true})
			time.Sleep(2 * time.Second)
			for _, i := range others(c, lost, remote) {
				c.Drop(lost, i)
			}
			time.Sleep(10 * time.Second)
			s := c.Node(others(c, lost, remote)[0]).ShardAt(1)
			mustPut(t, s, "k", fmt.Sprint(lost))
			m.Await(s, "k", 5*time.Second)
			m.Stop()
			c.Heal()
			c.AwaitReady()
		}
	})
}

// A transaction that reads more than one answer may have is done and answered at the first attempt, with all values, from every node.
func TestShard_Txn_LargeAnswer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		value := strings.Repeat("v", 500<<10)
		x := node.Txn{Then: []node.Op{node.AddOp("n", 1)}}
		for k := range underRace(17, 4) {
			key := fmt.Sprintf("k%02d", k)
			mustPut(t, c.Node(owner).ShardAt(1), key, value+key)
			x.Then = append(x.Then, node.GetOp(key))
		}
		for i := range c.Len() {
			n := c.Node(i)
			before := n.Stats().Retries
			res, err := n.ShardAt(1).Txn(within(t, 30*time.Second), x)
			if err != nil || res.Results[0].Number != int64(i)+1 {
				t.Fatalf("node %d: got %v, %v, want the counter at %d", i, res.Results, err, i+1)
			}
			for k, r := range res.Results[1:] {
				if want := value + x.Then[k+1].Key; string(r.Record.Value) != want || !r.Found {
					t.Errorf("node %d: read %d got %d bytes, want %d", i, k, len(r.Record.Value), len(want))
				}
			}
			if now := n.Stats().Retries; now != before {
				t.Errorf("node %d: %d attempts failed, want none: what was done must not look as if it was not", i, now-before)
			}
		}
	})
}
