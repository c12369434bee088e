package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// wantCopied waits until n has failed because its directory is a copy, and is closed.
func wantCopied(t *testing.T, c *nodetest.Cluster, n *node.Node) {
	t.Helper()
	c.Await("the process that was refused to stop", func() bool { return n.Err() != nil })
	wantErr(t, "the stopped node's error", n.Err(), node.ErrDirLocked)
	if s := n.Status().State; s != node.StateFailed {
		t.Errorf("the stopped node is %v, want failed", s)
	}
	<-n.Done()
	_, err := n.ShardAt(1).Get(t.Context(), "k")
	wantErr(t, "get at the stopped node", err, node.ErrClosed)
}

// wantServes wants n to have gone on.
func wantServes(t *testing.T, n *node.Node) {
	t.Helper()
	if err := n.Healthy(); err != nil {
		t.Errorf("the process that was to go on: %v", err)
		return
	}
	mustPut(t, n.ShardAt(1), "k", "v")
}

// startCopy starts the node in a copied directory, and waits until it has stopped, unless it was not opened at all.
func startCopy(t *testing.T, c *nodetest.Cluster, copied int) {
	t.Helper()
	if err := c.TryRestart(copied); err != nil {
		wantErr(t, "open the copy", err, node.ErrDirLocked)
		return
	}
	wantCopied(t, c, c.Node(copied))
	c.Close(copied)
}

// Of two processes in a directory and a copy of it the one that the others know goes on; the copy stops and says why, also when it is
// started again; with and without replicas of its own, and whether it reaches the original or only the others.
func TestIdentity_CopiedDirectory(t *testing.T) {
	for name, starts := range map[string]int{"same start": 1, "older copy": 2} { // of the original, after the copy was made
		for i := range 4 {
			caller, apart := i%2 == 1, i/2 == 1
			t.Run(fmt.Sprintf("%s, only calls %v, apart %v", name, caller, apart), func(t *testing.T) {
				bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
					original := 0
					if caller {
						original = c.Add(func(c *node.Config) { c.NoReplicas = true })
						c.AwaitReady()
					}
					c.Close(original)
					copied := c.Clone(original)
					c.MayFail(copied)
					if apart {
						c.Drop(original, copied)
					}
					for range starts {
						c.Close(original)
						c.Restart(original)
					}
					c.AwaitReady()
					startCopy(t, c, copied)
					for range 3 {
						err := c.TryRestart(copied)
						wantErr(t, "the copy's next start", err, node.ErrDirLocked)
						if !strings.Contains(fmt.Sprint(err), "COPIED") {
							t.Errorf("the copy's next start: %v, want the name of the file that forbids it", err)
						}
					}
					time.Sleep(time.Minute)
					wantServes(t, c.Node(original))
					wantServes(t, c.Node(1))
					c.Close(original)
					c.Restart(original)
					c.AwaitReady()
				})
			})
		}
	}
}

// A cluster of one node and its copy, where nobody else can say who is right: the younger stops, whether it finds the original where it was
// last or meets it later.
func TestIdentity_CopyOfLoneNode(t *testing.T) {
	const elsewhere = "127.8.0.1:7400"
	for _, addr := range []string{"127.0.0.1:7400", elsewhere} {
		t.Run("original at "+addr, func(t *testing.T) {
			o := &nodetest.Options{Config: func(_ int, c *node.Config) { c.Join = []string{elsewhere} }}
			bubble(t, 1, o, func(t *testing.T, c *nodetest.Cluster) {
				c.Close(0)
				copied := c.Clone(0)
				c.MayFail(copied)
				c.RestartAt(0, addr)
				c.AwaitReady()
				startCopy(t, c, copied)
				wantServes(t, c.Node(0))
			})
		})
	}
}
