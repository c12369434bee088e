package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/raft"
	"github.com/oarlock/oarlock/node/internal/wire"
)

const (
	// foundingTick is how often a node without a cluster looks around.
	foundingTick = 250 * time.Millisecond
	// lastRefusal is the longest pause before a node whose plans are refused proposes another.
	lastRefusal = time.Minute
)

// founding is how a node without a cluster comes to belong to one. It guards the identity while the node runs.
//
// A plan is stored by all its nodes before any of them starts. A node stores one plan at a time, never renounces it, and durably
// refuses every other; it drops one only after one of the plan's nodes durably refused it, since it can then never be
// complete. With Bootstrap above half of the nodes that carry it, two complete plans would share a node.
type founding struct {
	n *Node

	mu     sync.Mutex // guards n.home.id and n.home.plan, and that they are saved in order
	logged string     // the last obstacle that was logged

	// Of the goroutine that runs:
	pause time.Duration // after the next refusal
	next  time.Time     // not to propose before
}

// live founds, joins or resumes, and then runs the cluster's part on this node.
func (n *Node) live() {
	plan := n.founding.run(n.life.ctx)
	if plan == nil {
		return
	}
	err := n.join(plan)
	switch {
	case errors.Is(err, raft.ErrDataMissing) || errors.Is(err, raft.ErrForeignLog) || errors.Is(err, raft.ErrOpenFailed):
		n.fail(fmt.Errorf("start replicas in Config.Dir = %q: restore the whole directory, or give an empty one to start as a new node: %w", n.c.Dir, err))
	case err != nil:
		n.fail(fmt.Errorf("start replicas in Config.Dir = %q: %w", n.c.Dir, err))
	}
}

// run returns the plan of the cluster that this node belongs to, once it does; nil when ctx ends before.
func (f *founding) run(ctx context.Context) *wire.Plan {
	t := time.NewTicker(foundingTick)
	defer t.Stop()
	for {
		changed := f.n.net.gossip.Changed()
		if plan := f.step(ctx); plan != nil {
			return plan
		}
		select {
		case <-changed:
			if !sleep(ctx, foundingTick/10) { // changes come in bursts
				return nil
			}
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// step looks around once.
func (f *founding) step(ctx context.Context) *wire.Plan {
	plan, founded := f.current()
	if founded {
		return plan
	}
	joined, heard := f.joinFounded(ctx)
	if joined != nil {
		return joined
	}
	if plan == nil {
		if heard || f.n.c.Bootstrap == 0 {
			return nil
		}
		if plan = f.propose(); plan == nil {
			return nil
		}
	}
	return f.complete(ctx, plan)
}

// current is the stored plan, nil if there is none, and whether it is that of this node's cluster.
func (f *founding) current() (plan *wire.Plan, founded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n.home.plan, f.n.home.id.Founded
}

// obstacle logs why nothing goes on, once for each reason.
func (f *founding) obstacle(msg string, kv ...any) {
	key := fmt.Sprint(append([]any{msg}, kv...)...)
	f.mu.Lock()
	again := f.logged == key
	f.logged = key
	f.mu.Unlock()
	if !again {
		f.n.log.Warn(msg, kv...)
	}
}

// joinFounded joins the cluster that gossip knows of. heard says that it knows of any, reached or not: then this node founds none.
func (f *founding) joinFounded(ctx context.Context) (plan *wire.Plan, heard bool) {
	var members, gone []membership.Member
	clusters := map[string]bool{}
	for _, m := range f.founded() {
		heard = true
		if m.State == membership.Alive {
			members = append(members, m)
			clusters[m.Cluster] = true
		} else {
			gone = append(gone, m)
		}
	}
	if len(clusters) > 1 {
		f.obstacle("sees two clusters and joins neither: separate them, or give other Join addresses", "count", len(clusters))
		return nil, true
	}
	for _, m := range members {
		actx, cancel := context.WithTimeout(ctx, time.Second)
		reply := &wire.ClusterReply{}
		err := f.n.askAddr(actx, m.Addr, wire.MethodCluster, &wire.ClusterRequest{Header: f.n.header()}, reply)
		cancel()
		if err == nil && reply.GetPlan().GetCluster() == m.Cluster && checkPlan(reply.GetPlan()) == nil {
			return f.adopt(reply.GetPlan()), true
		}
	}
	switch {
	case len(members) > 0:
		f.obstacle("knows of a cluster and cannot reach it", "peer", members[0].Name, "addr", members[0].Addr)
	case len(gone) > 0:
		f.obstacle("has heard of a cluster that is gone: start one of its nodes, or restart all nodes that carry Bootstrap to found another", "peer", gone[0].Name, "addr", gone[0].Addr, "state", gone[0].State.String())
	}
	return nil, heard
}

// founded are the members of clusters that gossip knows of, alive or gone. A node that has none founds none of them: the disks of those that are gone
// may be all that is left of their cluster. Gossip forgets who left after an hour and who failed after three days, and a process
// that starts knows nobody that is gone.
func (f *founding) founded() []membership.Member {
	return slices.DeleteFunc(f.n.net.gossip.Members(), func(m membership.Member) bool { return m.Cluster == "" || m.ID == f.n.ID() })
}

// adopt makes the cluster of a plan this node's, for ever. Whatever plan was stored before is dropped.
func (f *founding) adopt(plan *wire.Plan) *wire.Plan {
	if err := f.n.c.matches(plan); err != nil {
		f.n.fail(err)
		return nil
	}
	if plan.GetFormat() > f.n.maxFormat() {
		f.n.fail(fmt.Errorf("%w: the cluster is at format version %d and this binary speaks up to %d: run the newer binary", ErrInvalid, plan.GetFormat(), f.n.maxFormat()))
		return nil
	}
	err := f.store(func(h *home) bool {
		h.plan, h.id.Founded, h.id.Refused = plan, true, nil // it refuses all others from now on
		h.id.Newest = max(h.id.Newest, plan.GetFormat())
		return true
	})
	if err != nil {
		f.n.fail(fmt.Errorf("store the cluster's plan: %w", err))
		return nil
	}
	return plan
}

// store changes the identity and saves it; change says whether there is anything to save. What cannot be saved is undone.
func (f *founding) store(change func(h *home) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.n.home
	id, plan := h.id, h.plan
	id.Refused = slices.Clone(id.Refused)
	if !change(h) {
		return nil
	}
	if err := h.save(); err != nil {
		h.id, h.plan = id, plan
		return err
	}
	return nil
}

// propose makes a plan when enough carriers of the same Bootstrap see each other and this node is the one to do it.
func (f *founding) propose() *wire.Plan {
	n := f.n
	ids, ok := f.carriers()
	if !ok || len(ids) < n.c.Bootstrap || slices.Min(ids) != n.ID() || time.Now().Before(f.next) {
		return nil
	}
	slices.Sort(ids)
	format, ok := f.common(ids[:n.c.Bootstrap])
	if !ok {
		f.obstacle("founders speak no common cluster format version: run like binaries")
		return nil
	}
	plan := newPlan(n.c, format, ids[:n.c.Bootstrap])
	stored := plan
	err := f.store(func(h *home) bool {
		if h.plan != nil { // somebody's plan came first
			stored = h.plan
			return false
		}
		h.plan = plan
		return true
	})
	if err != nil {
		n.fail(fmt.Errorf("store founding plan: %w", err))
		return nil
	}
	n.log.Info("proposes a cluster", "cluster", stored.GetCluster(), "nodes", len(stored.GetNodes()))
	return stored
}

// carriers are the nodes that this node could found a cluster with, itself included. It says whether it may.
func (f *founding) carriers() (ids []string, ok bool) {
	n, all := f.n, 0
	for _, m := range n.net.gossip.Members() {
		if m.Cluster != "" || m.Founder == 0 || m.State > membership.Suspect {
			continue
		}
		if m.Founder != n.c.Bootstrap {
			f.obstacle("carries another Bootstrap: give all founders the same", "peer", m.Name, "theirs", m.Founder, "ours", n.c.Bootstrap)
			return nil, false
		}
		if what, theirs, ours := f.disagrees(m.Record); what != "" {
			f.obstacle("would found another cluster: give all founders the same numbers", "peer", m.Name, "setting", what, "theirs", theirs, "ours", ours)
			return nil, false
		}
		all++
		if m.State == membership.Alive {
			ids = append(ids, m.ID)
		}
	}
	if all >= 2*n.c.Bootstrap && n.c.Bootstrap > 1 {
		f.obstacle("founds no cluster: Bootstrap must be more than half of the nodes that carry it, or two clusters could be founded", "carriers", all, "bootstrap", n.c.Bootstrap)
		return nil, false
	}
	return ids, true
}

// disagrees says about which number this node and another that carries Bootstrap disagree, "" if about none. A plan of both would overrule
// one of them.
func (f *founding) disagrees(r membership.Record) (what string, theirs, ours int) {
	c := f.n.c
	switch {
	case int(r.Shards) != c.shards():
		return "Shards", int(r.Shards), c.shards()
	case int(r.Replicas) != c.replicas():
		return "Replicas", int(r.Replicas), c.replicas()
	}
	return "", 0, 0
}

// common is the newest cluster format version that all the nodes speak.
func (f *founding) common(ids []string) (format uint32, ok bool) {
	low, high := uint32(minFormat), f.n.maxFormat()
	for _, id := range ids {
		m, ok := f.n.net.gossip.Member(id)
		if !ok {
			return 0, false
		}
		low, high = max(low, m.MinVersion), min(high, m.MaxVersion)
	}
	return high, low <= high
}
