package node

import (
	"fmt"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/raft"
	"github.com/oarlock/oarlock/node/internal/raftnet"
	"github.com/oarlock/oarlock/node/internal/replica"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// join makes this node part of the plan's cluster: it starts its replicas and everything that runs on them.
func (n *Node) join(plan *wire.Plan) error {
	cl := &cluster{plan: plan}
	for s, set := range plan.GetSets() {
		cl.groups = append(cl.groups, newGroup(n, uint64(s), set))
	}
	host, err := raft.Open(raft.Config{
		Dir:     n.home.path(raftDir),
		FS:      n.env.RaftFS,
		Node:    n.ID(),
		Cluster: plan.GetCluster(),
		Format:  plan.GetFormat(),
		Boot:    raftnet.Boot{Incarnation: n.me.Incarnation, Nonce: n.net.nonce},
		Admit: func(node string, b raftnet.Boot) bool {
			return n.net.gossip.Admit(node, b.Incarnation, b.Nonce)
		},
		Refused:         n.refused,
		ElectionTimeout: n.c.ElectionTimeout,
		Transport:       n.net.transport,
		Resolve:         n.net.gossip.Addr,
		Machine: func(shard, rep uint64) sm.IOnDiskStateMachine {
			return replica.New(n.disk.db, shard, rep, fsm.Options{MaxVersion: n.maxFormat()}, n.disk.log.Do, cl.groups[shard].local)
		},
		Leader: func(shard uint64) {
			if shard < uint64(len(cl.groups)) && cl.groups[shard].local != nil {
				cl.groups[shard].local.leaderChanged()
			}
		},
		Logger:          n.log,
		SnapshotEntries: n.env.SnapshotEntries,
	})
	if err != nil {
		return err
	}
	n.disk.host = host
	for _, g := range cl.groups {
		if g.local == nil {
			continue
		}
		if err := host.Start(g.id, g.local.replica, g.members(), n.home.id.Started); err != nil {
			return err
		}
	}
	if err := n.founding.store(func(h *home) bool {
		was := h.id.Started
		h.id.Started = true
		return !was
	}); err != nil {
		return fmt.Errorf("note that replicas run: %w", err)
	}
	if err := n.net.gossip.Update(func(r *membership.Record) {
		r.Cluster, r.Founder, r.Shards, r.Replicas = plan.GetCluster(), 0, 0, 0
	}); err != nil {
		return fmt.Errorf("gossip the cluster: %w", err)
	}
	n.begun(cl)
	return nil
}

// begun starts the goroutines of the cluster's part on this node and lets calls in.
func (n *Node) begun(cl *cluster) {
	n.cluster.Store(cl)
	n.life.mu.Lock()
	if n.life.state == StateStarting {
		n.life.state = StateRunning
	}
	n.life.mu.Unlock()
	close(n.founded)
	ctx := n.life.ctx
	for _, g := range cl.groups {
		if g.local != nil {
			n.life.tasks.spawn(func() { g.local.run(ctx) }) // stops with ctx
		}
	}
	n.life.tasks.spawn(func() { n.renewer.loop(ctx) })      // stops with ctx
	n.life.tasks.spawn(func() { newBalancer(n).loop(ctx) }) // stops with ctx
	n.life.tasks.spawn(func() { n.remember(ctx) })          // stops with ctx
	n.life.tasks.spawn(func() { n.endFormerSessions(ctx) }) // stops when done, or with ctx
	n.log.Info("belongs to cluster", "cluster", cl.plan.GetCluster(), "node", n.ID(), "incarnation", n.me.Incarnation)
}
