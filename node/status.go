package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A State is how a node is.
type State uint8

// States of a node. They rise.
const (
	StateStarting State = iota // founding or joining
	StateRunning               // belongs to a cluster
	StateFailed                // cannot go on, see Node.Err
	StateRemoved               // no longer belongs to its cluster
	StateClosed                // closed
)

// String is the state's name.
func (s State) String() string {
	return [...]string{"starting", "running", "failed", "removed", "closed"}[min(s, StateClosed)]
}

// MarshalText makes a State its name in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what is where and how it is, as this node sees it at one instant.
type Status struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Addr        string        `json:"addr"`
	Incarnation uint64        `json:"incarnation"`
	State       State         `json:"state"`
	Err         string        `json:"err,omitempty"`
	Cluster     string        `json:"cluster,omitempty"`
	Format      uint32        `json:"format,omitempty"`  // cluster format version it was founded at
	Pending     []string      `json:"pending,omitempty"` // UUIDs of a stored founding plan's nodes, while it is not complete
	Foreign     []string      `json:"foreign,omitempty"` // names and addresses of nodes of other clusters that gossip sees
	Members     []Member      `json:"members"`
	Shards      []ShardStatus `json:"shards"`         // the system shard, 0, first
	Idle        []string      `json:"idle,omitempty"` // names of nodes with replicas that seem to own nothing
}

// ShardStatus is one shard as this node sees it.
type ShardStatus struct {
	Shard    int      `json:"shard"`
	Replicas []string `json:"replicas"`          // UUIDs of the nodes that have one
	Owner    string   `json:"owner,omitempty"`   // UUID of the node that seems to own it
	Token    Token    `json:"token,omitempty"`   // of its ownership, if a replica is here
	Owned    bool     `json:"owned"`             // by this node, under a good lease
	Waits    bool     `json:"waits,omitempty"`   // owned by this node, and beyond the Max of an Own that does not run for it
	Applied  uint64   `json:"applied,omitempty"` // index of the last entry in the replica here
	Unable   string   `json:"unable,omitempty"`  // why this node, which Raft made the leader, does not own it, or gave it away for a while
}

// Status returns the node's view of itself and its cluster. It asks nobody and never blocks.
func (n *Node) Status() Status {
	n.life.mu.Lock()
	s := Status{ID: n.ID(), Name: n.c.Name, Addr: n.Addr(), Incarnation: n.me.Incarnation, State: n.life.state}
	if n.life.err != nil {
		s.Err = n.life.err.Error()
	}
	n.life.mu.Unlock()
	for m := range n.Members() {
		s.Members = append(s.Members, m)
	}
	s.Foreign = n.foreign()
	if plan, founded := n.founding.current(); plan != nil && !founded {
		s.Pending = plan.GetNodes()
	}
	cl := n.cluster.Load()
	if cl == nil {
		return s
	}
	s.Cluster, s.Format = cl.plan.GetCluster(), cl.plan.GetFormat()
	owners := map[string]bool{}
	for _, g := range cl.groups {
		sh := g.status()
		owners[sh.Owner] = true
		s.Shards = append(s.Shards, sh)
	}
	for _, id := range cl.plan.GetNodes() {
		if !owners[id] {
			s.Idle = append(s.Idle, n.memberOf(id).Name)
		}
	}
	return s
}

func (g *group) status() ShardStatus {
	s := ShardStatus{Shard: int(g.id)}
	for _, r := range g.replicas {
		s.Replicas = append(s.Replicas, r.GetNode())
	}
	if g.local == nil {
		if h := g.hint.Load(); h != nil {
			s.Owner = *h
		}
		return s
	}
	if m := g.local.machine.Load(); m != nil {
		s.Applied = m.Applied()
		if c := m.Claim(); !c.Released {
			s.Owner, s.Token = c.Node, c.Token
		}
	}
	s.Owned = g.owned() != nil
	if !s.Owned && (g.local.view().Self || g.local.unable.shy(g.local.now())) {
		s.Unable = g.local.unable.reason()
	}
	s.Waits = s.Owned && g.n.owning.waits(g)
	return s
}

// Ready waits until the node belongs to a cluster, its own replicas have caught up and every shard has an owner. It returns
// ErrNoQuorum with the cause of ctx, or ErrClosed. A ctx without a deadline waits for ever.
func (n *Node) Ready(ctx context.Context) error {
	ctx, end, err := n.begin(ctx, false)
	if err != nil {
		return err
	}
	defer end()
	cl, err := n.waitCluster(ctx)
	if err != nil {
		return err
	}
	for _, g := range cl.groups {
		for g.local != nil {
			if err := n.disk.host.Read(ctx, g.id, n.c.ElectionTimeout); err == nil {
				break
			}
			if !sleep(ctx, lastPause) {
				return gaveUp(ctx, "wait until replicas have caught up", false)
			}
		}
		if _, _, err := g.owner(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown stops the node gracefully: it hands its shards over, all at once, ends its sessions, tells the others that it leaves and
// closes. The callbacks of Own, Lead and RunOnce get Config.DrainTimeout. When ctx ends first, the rest is cut short and its cause is part of the
// error; the node is closed in any case.
func (n *Node) Shutdown(ctx context.Context) error {
	if !n.life.calls.enter() {
		return n.Close()
	}
	var drained sync.WaitGroup
	drained.Go(func() { n.leading.drain(ctx, n.c.DrainTimeout) }) // stops within the drain timeout and ctx
	err := n.handOverAll(ctx)
	drained.Wait()
	n.endSessions(ctx)
	n.leave(ctx)
	n.life.calls.leave()
	if err == nil {
		err = context.Cause(ctx)
	}
	if cerr := n.Close(); cerr != nil {
		return cerr
	}
	return err
}

// endSessions ends this node's sessions in the log, so that what they held is free at once, but for those under which a callback still runs.
func (n *Node) endSessions(ctx context.Context) {
	cl := n.cluster.Load()
	if cl == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*n.c.ElectionTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, g := range cl.groups {
		for _, x := range g.sessions.live() {
			if n.leading.busy(x) {
				n.log.Warn("callback still runs: its session runs out", "shard", g.id)
				continue
			}
			wg.Go(func() { // stops when the session's end is in the log, or with ctx
				if err := x.close(ctx); err != nil {
					n.log.Debug("session was not ended", "shard", g.id, "err", err)
				}
			})
		}
	}
	wg.Wait()
}

// endFormerSessions ends the sessions of this node's former incarnations: they died with their process, which is certain on the same
// boot of the machine, since it held the directory's lock. A shard that has no owner now holds up no other.
func (n *Node) endFormerSessions(ctx context.Context) {
	if !n.home.sameBoot || n.me.Incarnation == 1 {
		return
	}
	for _, g := range n.cluster.Load().groups {
		n.life.tasks.spawn(func() { g.endFormerSessions(ctx) }) // stops when done, or with ctx
	}
}

func (g *group) endFormerSessions(ctx context.Context) {
	began := time.Now()
	op := &fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: g.n.ID(), Incarnation: g.n.me.Incarnation}}}
	for ctx.Err() == nil {
		actx, cancel := context.WithTimeout(ctx, g.n.c.RequestTimeout)
		res, err := g.call(actx, "end former sessions", op)
		cancel()
		if err == nil && !slices.Contains(res.GetExists(), true) { // there are no more
			g.n.log.Debug("ended sessions of former incarnations", "shard", g.id, "took", time.Since(began))
			return
		}
	}
}
