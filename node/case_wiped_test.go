package node_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Two of three disks are lost, and their nodes start empty, with the founding's Bootstrap, before the survivor, after it, or around it. There is
// never a second cluster, nothing is served, and the survivor's data stays what it was: with the lost disks found again all of it is
// there (cases 83, 104 and 114).
func TestCase114_EmptyMajority(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}} { // 2 is the survivor
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Config: func(_ int, c *node.Config) { c.Bootstrap = 3 }}, func(t *testing.T, c *nodetest.Cluster) {
				putValues(t, c, 5)
				want := clustersOf(c)
				for i := range 3 {
					c.Close(i)
				}
				found := []int{c.Clone(0), c.Clone(1)} // the disks, should they turn up
				c.Wipe(0)
				c.Wipe(1)
				for _, i := range order {
					c.Restart(i)
					time.Sleep(20 * time.Second)
					if got := clustersOf(c); len(got) > 0 && !slices.Equal(got, want) {
						t.Errorf("after the start of node %d: clusters %v, want none or %v", i, got, want)
					}
				}
				if got := clustersOf(c); !slices.Equal(got, want) {
					t.Errorf("clusters: got %v, want %v", got, want)
				}
				applied := c.Node(2).Status().Shards[1].Applied
				for i := range 3 {
					if _, err := c.Node(i).ShardAt(1).Get(within(t, 5*time.Second), "k1"); !errors.Is(err, node.ErrNoQuorum) {
						t.Errorf("get at node %d without a majority: got %v, want ErrNoQuorum", i, err)
					}
				}
				c.Close(2)
				c.Restart(2)
				time.Sleep(5 * time.Second)
				if got := c.Node(2).Status().Shards[1].Applied; got != applied || got == 0 {
					t.Errorf("the survivor has applied %d entries, had %d", got, applied)
				}
				for _, i := range found {
					c.Restart(i)
				}
				wantValues(t, c, 2, 5)
				wantValues(t, c, 0, 5)
			})
		})
	}
}
