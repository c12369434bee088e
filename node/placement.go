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
	room  map[string]time.Duration // when a node was first seen to have room for a shard, without a gap since
	gifts map[string]gift          // what this node handed to others a moment ago, and gossip may not show yet
	next  map[uint64]time.Duration // by shard: not to be moved before
	pause map[uint64]time.Duration // by shard: after the last failure
	seen  string                   // the foreign nodes that were logged
}

// gift is a number of shards, until when it counts.
type gift struct {
	shards int
	until  time.Duration
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
		b.n.gossipRuns()
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
		b.gave(g.nodeOf(to))
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

// followHere reads up to what is committed in the shard, and says how far this node's replica is. A node that could not own the shard a moment ago
// refuses, so that it is not handed to it again.
func (g *group) followHere(ctx context.Context) *wire.FollowReply {
	if g.local == nil || g.local.unable.shy(g.local.now()) || g.n.disk.host.Read(ctx, g.id, g.n.c.ElectionTimeout/2) != nil {
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

// observe notes who is alive, and who has room, since when.
func (b *balancer) observe() {
	now := b.n.env.Clock.Now()
	alive, room := map[string]bool{}, map[string]bool{}
	for _, m := range b.n.net.gossip.Members() {
		alive[m.ID] = m.State == membership.Alive
		room[m.ID] = alive[m.ID] && m.Runs && m.Room != 0
	}
	note(b.since, alive, now)
	note(b.room, room, now)
}

// note keeps in since those that are seen, from when they were seen first.
func note(since map[string]time.Duration, seen map[string]bool, now time.Duration) {
	for id, yes := range seen {
		if _, ok := since[id]; yes && !ok {
			since[id] = now
		}
	}
	for id := range since {
		if !seen[id] {
			delete(since, id)
		}
	}
}

// gave notes that a shard was handed to the node.
func (b *balancer) gave(node string) {
	now := b.n.env.Clock.Now()
	x := b.gifts[node]
	if now >= x.until {
		x.shards = 0
	}
	b.gifts[node] = gift{shards: x.shards + 1, until: now + settle}
}

// move is the replica that should own the shard instead of this node, 0 if it should stay.
func (b *balancer) move(g *group) uint64 {
	o := g.owned()
	now := b.n.env.Clock.Now()
	if o == nil || now < b.next[g.id] || now-o.since < settle {
		return 0
	}
	return g.replicaOn(b.place(g, now))
}

// place is the node that should own the shard, among those that have been alive for a while.
func (b *balancer) place(g *group, now time.Duration) string {
	var seats []seat
	for _, r := range g.replicas {
		id := r.GetNode()
		since, alive := b.since[id]
		if id == b.n.ID() {
			seats = append(seats, b.n.mySeat(g))
		} else if alive && now-since >= settle {
			s := b.n.seatOf(g, id)
			if x := b.gifts[id]; now < x.until && s.room > 0 {
				s.room = max(s.room-x.shards, 0)
			}
			if since, ok := b.room[id]; !ok || now-since < settle {
				s.room = 0
			}
			seats = append(seats, s)
		}
	}
	best := choose(seats, b.n.ID())
	if best == b.n.ID() {
		return ""
	}
	return best
}

// successor is the replica to hand a shard to when this node leaves, 0 if none seems alive.
func (n *Node) successor(g *group) uint64 {
	var seats []seat
	for _, r := range g.replicas {
		if id := r.GetNode(); id != n.ID() && n.alive(id) {
			seats = append(seats, n.seatOf(g, id))
		}
	}
	return g.replicaOn(choose(seats, ""))
}

func newBalancer(n *Node) *balancer {
	return &balancer{
		n: n, since: map[string]time.Duration{}, room: map[string]time.Duration{}, gifts: map[string]gift{},
		next: map[uint64]time.Duration{}, pause: map[uint64]time.Duration{},
	}
}
