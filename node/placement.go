package node

import (
	"context"
	"strings"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/wire"
)

const (
	balanceTick = 500 * time.Millisecond
	settle      = 2 * time.Second  // a node is alive, and a shard owned, for so long before it moves
	retryMove   = 10 * time.Second // after the first hand-over that came to nothing

	lastRetryMove = 5 * time.Minute // after many
)

// balancer hands shards that this node owns to the node that the plan prefers. It moves nothing to a node that gossip has seen alive
// only for a moment.
type balancer struct {
	n     *Node
	since map[string]time.Duration // when a node was first seen alive, without a gap since
	next  map[uint64]time.Duration // by shard: not to be moved before
	pause map[uint64]time.Duration // by shard: after the last failure
	seen  string                   // the foreign nodes that were logged
}

// loop looks at the owned shards again and again, until ctx ends. It hands over one at a time.
func (b *balancer) loop(ctx context.Context) {
	t := time.NewTicker(balanceTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		b.observe()
		b.warnForeign()
		for _, g := range b.n.cluster.Load().groups {
			b.n.raise(ctx, g)
			if to := b.move(g); to != 0 && ctx.Err() == nil {
				b.handOver(ctx, g, to)
			}
		}
	}
}

// handOver hands the shard to the replica to, if that can take it over. After a failure it waits twice as long as the time before.
func (b *balancer) handOver(ctx context.Context, g *group, to uint64) {
	o := g.owned()
	if o == nil {
		return
	}
	if o.follows(ctx, to) && o.handOver(ctx, to) == nil && !o.l.view().Self {
		delete(b.pause, g.id)
		return
	}
	b.pause[g.id] = min(max(2*b.pause[g.id], retryMove), lastRetryMove)
	b.next[g.id] = b.n.env.Clock.Now() + b.pause[g.id]
	b.n.log.Debug("preferred replica cannot take the shard over", "shard", g.id, "replica", to)
}

// follows says whether a replica keeps up: a fresh entry is committed, and the replica's node has read up to it. A stalled disk, a cut
// network and a lag all fail that, and gossip sees none of them.
func (o *ownership) follows(ctx context.Context, to uint64) bool {
	g := o.l.g
	ctx, cancel := context.WithTimeout(ctx, g.n.c.ElectionTimeout)
	defer cancel()
	if _, err := o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_Touch{Touch: &fsmpb.Touch{}}}); err != nil {
		return false
	}
	reply := &wire.FollowReply{}
	err := g.n.ask(ctx, g.nodeOf(to), wire.MethodFollow, &wire.FollowRequest{Header: g.n.header(), Shard: uint32(g.id)}, reply)
	return err == nil && reply.GetOutcome() == wire.Outcome_DONE && reply.GetApplied() >= o.l.machine.Load().Applied()
}

// followHere reads up to what is committed in the shard, and says how far this node's replica is.
func (g *group) followHere(ctx context.Context) *wire.FollowReply {
	if g.local == nil || g.n.disk.host.Read(ctx, g.id, g.n.c.ElectionTimeout/2) != nil {
		return &wire.FollowReply{Outcome: wire.Outcome_NOT_OWNER}
	}
	return &wire.FollowReply{Outcome: wire.Outcome_DONE, Applied: g.local.machine.Load().Applied()}
}

// warnForeign logs nodes of other clusters, once for each set of them.
func (b *balancer) warnForeign() {
	foreign := b.n.foreign()
	seen := strings.Join(foreign, ", ")
	if seen != b.seen && seen != "" {
		b.n.log.Error("nodes of another cluster are among the gossip: check Config.Join", "peers", foreign, "err", ErrForeignCluster)
	}
	b.seen = seen
}

func (b *balancer) observe() {
	now := b.n.env.Clock.Now()
	seen := map[string]bool{}
	for _, m := range b.n.net.gossip.Members() {
		if m.State != membership.Alive {
			continue
		}
		seen[m.ID] = true
		if _, ok := b.since[m.ID]; !ok {
			b.since[m.ID] = now
		}
	}
	for id := range b.since {
		if !seen[id] {
			delete(b.since, id)
		}
	}
}

// move is the replica that should own the shard instead of this node, 0 if it should stay.
func (b *balancer) move(g *group) uint64 {
	o := g.owned()
	now := b.n.env.Clock.Now()
	if o == nil || now < b.next[g.id] || now-o.since < settle {
		return 0
	}
	best := b.n.preferred(g, func(node string) bool {
		since, ok := b.since[node]
		return node == b.n.ID() || ok && now-since >= settle
	})
	if best == b.n.ID() {
		return 0
	}
	return g.replicaOn(best)
}

// preferred is the first node of the shard's replicas that qualifies, among those on which an Own runs if there are any.
func (n *Node) preferred(g *group, qualifies func(node string) bool) string {
	first, firstRuns := "", ""
	for _, r := range g.replicas {
		node := r.GetNode()
		if !qualifies(node) {
			continue
		}
		if first == "" {
			first = node
		}
		if firstRuns == "" && g.id != 0 && n.runsOwn(node) {
			firstRuns = node
		}
	}
	if firstRuns != "" {
		return firstRuns
	}
	return first
}

func (n *Node) runsOwn(node string) bool {
	m, ok := n.net.gossip.Member(node)
	return ok && m.Runs
}

// successor is the replica to hand a shard to when this node leaves, 0 if none seems alive.
func (n *Node) successor(g *group) uint64 {
	return g.replicaOn(n.preferred(g, func(node string) bool { return node != n.ID() && n.alive(node) }))
}

func newBalancer(n *Node) *balancer {
	return &balancer{n: n, since: map[string]time.Duration{}, next: map[uint64]time.Duration{}, pause: map[uint64]time.Duration{}}
}
