package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// What was fixed at the founding is refused with both numbers when a restart gives another; what may change is applied, and nothing gets stuck
// (case 117).
func TestCase117_OtherConfigAtRestart(t *testing.T) {
	dir := usedDir(t)
	for want, change := range map[string]func(*node.Config){
		"Config.Shards = 7: the cluster was founded with 1":   func(c *node.Config) { c.Shards = 7 },
		"Config.Replicas = 5: the cluster was founded with 3": func(c *node.Config) { c.Replicas, c.Bootstrap = 5, 0 },
	} {
		c := realConfig(dir)
		change(&c)
		_, err := node.Open(t.Context(), c)
		if !errors.Is(err, node.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrInvalid with %q", err, want)
		}
	}
	before := openReal(t, realConfig(dir))
	cluster, id := before.Status().Cluster, before.ID()
	closeReal(t, before)
	for i, change := range []func(*node.Config){
		func(c *node.Config) { c.Name, c.Shards, c.Replicas, c.Bootstrap = "renamed", 0, 0, 7 },
		func(c *node.Config) { c.Name, c.Weight, c.MaxMoves, c.History, c.Replicas = "weighty", 9, 3, 500, 3 },
		func(c *node.Config) { c.Name, c.SessionTTL, c.ElectionTimeout = "slow", time.Minute, 2*time.Second },
		func(c *node.Config) { c.Name, c.Zone, c.Tags = "tagged", "z", map[string]string{"a": "b"} },
	} {
		c := realConfig(dir)
		change(&c)
		n := openReal(t, c)
		if err := n.Ready(t.Context()); err != nil {
			t.Fatalf("ready: %v", err)
		}
		if s := n.Status(); cluster != "" && s.Cluster != cluster || s.ID != id || s.Name != c.Name || s.Incarnation != uint64(5+i) {
			t.Errorf("%s: %+v, want node %s of cluster %s, start %d", c.Name, s, id, cluster, 5+i)
		}
		closeReal(t, n)
	}
}

// Founders that disagree about Shards or Replicas, zero being the default, say so with both numbers and plan nothing, however often they are
// restarted; when the odd one is mended they found at once (case 117).
func TestCase117_FoundersDisagree(t *testing.T) {
	for name, odd := range map[string]func(*node.Config){
		"setting=Shards theirs=2 ours=1":   func(c *node.Config) { c.Shards = 2 },
		"setting=Shards theirs=16 ours=1":  func(c *node.Config) { c.Shards = 0 },
		"setting=Replicas theirs=1 ours=3": func(c *node.Config) { c.Replicas = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var book logbook
				mended := false
				c := nodetest.New(t, 3, &nodetest.Options{Config: func(i int, c *node.Config) {
					c.Logger = book.logger(hclog.Info)
					if i == 2 && !mended {
						odd(c)
					}
				}})
				time.Sleep(30 * time.Second)
				c.Close(0)
				c.Restart(0)
				time.Sleep(30 * time.Second)
				book.wantLog(t, name)
				if got := clustersOf(c); len(got) > 0 || book.count("proposes a cluster") > 0 {
					t.Errorf("founded %v after %d proposals, want none", got, book.count("proposes a cluster"))
				}
				mended = true
				c.Close(2)
				c.Restart(2)
				backWithin(t, c, 10*time.Second, "mended")
			})
		})
	}
}

// A node that joins with another number than the cluster's fails with both, and costs the cluster nothing; with zero it takes the cluster's
// (case 117).
func TestCase117_JoinDisagrees(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for want, change := range map[string]func(*node.Config){
			"Config.Shards = 2: the cluster was founded with 1":   func(c *node.Config) { c.Shards = 2 },
			"Config.Replicas = 5: the cluster was founded with 3": func(c *node.Config) { c.Replicas = 5 },
		} {
			var n *node.Node
			i := c.Add(change)
			c.MayFail(i)
			c.Await("the node to fail", func() bool { n = c.Node(i); return n.Err() != nil })
			wantErr(t, "the node's error", n.Err(), node.ErrInvalid)
			if !strings.Contains(fmt.Sprint(n.Err()), want) {
				t.Errorf("got %v, want %q", n.Err(), want)
			}
			c.Close(i)
		}
		c.Add(func(c *node.Config) { c.Shards, c.Replicas = 0, 0 })
		c.AwaitReady()
	})
}
