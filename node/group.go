package node

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// directAgain is how long after a failure the likeliest owner is asked directly again, and not through another node.
const directAgain = 2 * time.Second

// cluster is what a node knows of the cluster it belongs to. It does not change.
type cluster struct {
	plan   *wire.Plan
	groups []*group // by shard, the system shard first
}

// shards is the number of user shards.
func (c *cluster) shards() int { return len(c.groups) - 1 }

// group is one shard as this node sees it: where its replicas are, who seems to own it, the replica here if there is one.
type group struct {
	n        *Node
	id       uint64
	replicas []*wire.Replica        // the preferred owner first
	local    *local                 // nil: no replica here
	hint     atomic.Pointer[string] // the node that served last, or was named as the owner
	misses   atomic.Uint32          // failures since one was served directly
	missedAt atomic.Int64           // when the last one was, since boot
	sessions sessions               // of this node with this shard
	listener listener
	feed     feed
	pulse    pulse
	source   atomic.Pointer[string] // the replica that answered last, of a node that has none
	shard    Shard                  // the handle without a view
}

func newGroup(n *Node, id uint64, set *wire.ReplicaSet) *group {
	g := &group{n: n, id: id, replicas: set.GetReplicas()}
	g.shard = Shard{n: n, id: int(id)}
	g.sessions.init(g)
	g.listener.init(g)
	g.feed.init(g)
	g.pulse.init()
	for _, r := range g.replicas {
		if r.GetNode() == n.ID() {
			g.local = newLocal(g, r.GetId())
		}
	}
	return g
}

// members are the group's first members by replica id.
func (g *group) members() map[uint64]string {
	m := make(map[uint64]string, len(g.replicas))
	for _, r := range g.replicas {
		m[r.GetId()] = r.GetNode()
	}
	return m
}

// nodeOf is the node that has the replica, "" if there is none.
func (g *group) nodeOf(replica uint64) string {
	for _, r := range g.replicas {
		if r.GetId() == replica {
			return r.GetNode()
		}
	}
	return ""
}

// replicaOn is the replica that the node has, 0 if none.
func (g *group) replicaOn(node string) uint64 {
	for _, r := range g.replicas {
		if r.GetNode() == node {
			return r.GetId()
		}
	}
	return 0
}

// setHint notes the node that may own the shard.
func (g *group) setHint(node string) {
	if node != "" && g.replicaOn(node) != 0 {
		g.hint.Store(&node)
	}
}

// candidates are the nodes to ask for the shard, the likeliest owner first.
func (g *group) candidates() []string {
	c := make([]string, 0, len(g.replicas)+2)
	add := func(node string) {
		if node != "" && !slices.Contains(c, node) {
			c = append(c, node)
		}
	}
	if g.owned() != nil {
		add(g.n.ID())
	}
	if g.local != nil {
		leader, _ := g.n.disk.host.Leader(g.id)
		add(g.nodeOf(leader))
	}
	if h := g.hint.Load(); h != nil {
		add(*h)
	}
	for _, r := range g.replicas {
		add(r.GetNode())
	}
	return c
}

// likely is the node that seems to own the shard.
func (g *group) likely() string { return g.candidates()[0] }

// target is the node to ask next: the likeliest owner, or after failures another that may pass the call on.
func (g *group) target() (node string, relay bool) {
	c := g.candidates()
	if g.n.env.Clock.Fast()-time.Duration(g.missedAt.Load()) > directAgain {
		g.misses.Store(0)
	}
	i := int(g.misses.Load()) % len(c)
	return c[i], i > 0
}

// missed notes that node did not serve the shard.
func (g *group) missed(node string) {
	if t, _ := g.target(); t == node {
		g.misses.Add(1)
		g.missedAt.Store(int64(g.n.env.Clock.Fast()))
	}
}

// served notes that node served the shard, itself or by passing the call on.
func (g *group) served(node string, relay bool) {
	if !relay {
		g.misses.Store(0)
		g.setHint(node)
	}
}

// owned is the ownership of this node, nil if it has none with a good lease.
func (g *group) owned() *ownership {
	if g.local == nil {
		return nil
	}
	if o := g.local.own.Load(); o != nil && o.good() {
		return o
	}
	return nil
}

// endHolds ends the ownership and the sessions here.
func (g *group) endHolds(cause error) {
	if g.local != nil {
		if o := g.local.own.Load(); o != nil {
			o.end(cause)
		}
	}
	g.sessions.endAll(cause)
}

// shardOf maps a key to one of n user shards, the same on every node for ever.
func shardOf(key string, n int) int {
	return int(xxhash.Sum64String(key)%uint64(n)) + 1
}
