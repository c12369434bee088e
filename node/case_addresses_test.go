package node_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// settled is how long nodes need until they have written down where the others are.
const settled = 25 * time.Second

// backWithin waits until all nodes are ready and fails if that takes longer than limit.
func backWithin(t *testing.T, c *nodetest.Cluster, limit time.Duration, what string) {
	t.Helper()
	began := time.Now()
	c.AwaitReady()
	if took := time.Since(began); took > limit {
		t.Errorf("%s: ready after %v, want at most %v", what, took, limit)
	}
}

// Nodes whose seeds are the addresses of the founding, with Bootstrap as it was then, move one at a time, in any order, until every seed is
// stale; then one moves again, and all lose power at once and come back where they were. They find each other each time, without
// any name service, and are the cluster that they were (cases 110 and 111).
func TestCase111_StaleSeeds(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: func(_ int, c *node.Config) { c.Bootstrap = 3 }}, func(t *testing.T, c *nodetest.Cluster) {
				putValues(t, c, 5)
				cluster := clustersOf(c)
				last := order[len(order)-1]
				for round, i := range append(order, last) {
					if round%2 == 0 {
						c.Close(i)
					} else {
						c.Shutdown(i)
					}
					time.Sleep(20 * time.Second)
					c.RestartAt(i, fmt.Sprintf("127.7.%d.%d:7400", round, i+1))
					backWithin(t, c, 10*time.Second, fmt.Sprintf("node %d moved", i))
					time.Sleep(settled)
				}
				for i := range 3 {
					c.Kill(i)
					c.Reboot(i)
				}
				time.Sleep(20 * time.Second)
				for _, i := range order {
					c.Restart(i)
				}
				backWithin(t, c, 15*time.Second, "all restarted")
				if got := clustersOf(c); !slices.Equal(got, cluster) {
					t.Errorf("clusters: got %v, want %v", got, cluster)
				}
				wantValues(t, c, 1, 5)
			})
		})
	}
}

// A node without replicas, whose seeds are all stale and which itself moved while it was down, finds the cluster, though the address that it
// remembers of one node is another node's now; each node keeps its own identity (cases 69 and 110).
func TestCase110_RememberedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, nil)
		caller := c.Add(func(c *node.Config) { c.NoReplicas = true })
		c.AwaitReady()
		putValues(t, c, 3)
		for i := range 3 {
			c.Close(i)
			c.RestartAt(i, fmt.Sprintf("127.7.0.%d:7400", i+1))
			c.AwaitReady()
		}
		time.Sleep(settled)
		c.Close(caller)
		c.Close(0)
		old := c.Addr(0)
		c.RestartAt(0, "127.7.1.1:7400")
		other := c.Add(func(c *node.Config) { c.Bind, c.NoReplicas, c.Join = old, true, []string{"127.7.0.2:7400"} })
		c.AwaitReady()
		time.Sleep(2 * time.Minute)
		c.RestartAt(caller, "127.7.1.9:7400")
		backWithin(t, c, 15*time.Second, "the caller moved")
		wantValues(t, c, caller, 3)
		addrs := map[string]string{}
		for m := range c.Node(caller).Members() {
			addrs[m.ID] = m.Addr
		}
		for _, i := range []int{0, 1, 2, caller, other} {
			if got := addrs[c.Node(i).ID()]; got != c.Addr(i) {
				t.Errorf("node %d is at %q, want %s", i, got, c.Addr(i))
			}
		}
	})
}
