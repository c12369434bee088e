package nodetest

import (
	"context"
	"time"
)

// look is how often the Await methods look.
const look = 5 * time.Millisecond

// Owner is the index of the node that believes now that it owns the shard, -1 if none does.
func (c *Cluster) Owner(shard int) int {
	for _, m := range c.all() {
		if n := m.running(); n != nil {
			if _, ok := n.ShardAt(shard).Owned(); ok {
				return m.i
			}
		}
	}
	return -1
}

// AwaitOwner waits until a node owns the shard and returns its index.
func (c *Cluster) AwaitOwner(shard int) int {
	c.t.Helper()
	i := -1
	c.Await("an owner of the shard", func() bool {
		i = c.Owner(shard)
		return i >= 0
	})
	return i
}

// AwaitReady waits until every node that runs is ready: see node.Node.Ready.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, m := range c.all() {
		n := m.running()
		if n == nil {
			continue
		}
		stop := c.checks.byDeadline(ctx, "ready")
		err := n.Ready(ctx)
		stop()
		if err != nil {
			c.t.Fatalf("node %d is not ready after %v: %v", m.i, patience, err)
		}
	}
}

// AwaitOwnedBy waits until node i owns the shard.
func (c *Cluster) AwaitOwnedBy(shard, i int) {
	c.t.Helper()
	c.Await("the node to own the shard", func() bool { return c.Owner(shard) == i })
}

// Await waits until ok returns true, in virtual time, and ends the test after a minute. what says what for.
func (c *Cluster) Await(what string, ok func() bool) {
	c.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(look) {
		if time.Since(began) > patience {
			c.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
