package node

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// minFormat is the oldest cluster format version that this binary speaks.
const minFormat = 1

// newPlan lays out a cluster over the given nodes.
func newPlan(c Config, format uint32, nodes []string) *wire.Plan {
	shards := c.shards()
	p := &wire.Plan{
		Id:       uuid.NewString(),
		Cluster:  uuid.NewString(),
		Format:   format,
		Shards:   uint32(shards),
		Replicas: uint32(c.replicas()),
		Nodes:    nodes,
		Proposer: nodes[0],
	}
	copies := min(c.replicas(), len(nodes))
	if copies%2 == 0 {
		copies--
	}
	for s := range shards + 1 {
		set := &wire.ReplicaSet{}
		for r := range copies {
			set.Replicas = append(set.Replicas, &wire.Replica{Id: uint64(r + 1), Node: nodes[(s+r)%len(nodes)]})
		}
		p.Sets = append(p.Sets, set)
	}
	return p
}

// checkPlan says what makes a plan that came from a disk or a peer unusable: Raft would panic on it.
func checkPlan(p *wire.Plan) error {
	switch {
	case p.GetId() == "" || p.GetCluster() == "":
		return fmt.Errorf("%w: plan %q of cluster %q", ErrInvalid, p.GetId(), p.GetCluster())
	case p.GetShards() < 1 || p.GetShards() > maxShards || len(p.GetSets()) != int(p.GetShards())+1:
		return fmt.Errorf("%w: plan of %d shards has %d replica sets", ErrInvalid, p.GetShards(), len(p.GetSets()))
	}
	for s, set := range p.GetSets() {
		seen := map[any]bool{}
		for _, r := range set.GetReplicas() {
			if r.GetId() == 0 || seen[r.GetId()] || seen[r.GetNode()] || !slices.Contains(p.GetNodes(), r.GetNode()) {
				return fmt.Errorf("%w: plan of shard %d: replica %d on node %q", ErrInvalid, s, r.GetId(), r.GetNode())
			}
			seen[r.GetId()], seen[r.GetNode()] = true, true
		}
		if len(seen) == 0 {
			return fmt.Errorf("%w: plan of shard %d: no replica", ErrInvalid, s)
		}
	}
	return nil
}

// matches says what of the config contradicts a cluster's plan.
func (c Config) matches(p *wire.Plan) error {
	var errs []error
	for _, f := range []struct {
		name         string
		ours, theirs int
	}{{"Shards", c.Shards, int(p.GetShards())}, {"Replicas", c.Replicas, int(p.GetReplicas())}} {
		if f.ours != 0 && f.ours != f.theirs {
			errs = append(errs, fmt.Errorf("%w: Config.%s = %d: the cluster was founded with %d: give that, or zero", ErrInvalid, f.name, f.ours, f.theirs))
		}
	}
	return errors.Join(errs...)
}

// acceptable says whether this node would found the cluster of that plan, which is that it would have laid out the same.
func (f *founding) acceptable(p *wire.Plan) bool {
	return f.n.c.Bootstrap > 0 && f.n.c.Bootstrap == len(p.GetNodes()) && slices.Contains(p.GetNodes(), f.n.ID()) &&
		f.n.c.shards() == int(p.GetShards()) && f.n.c.replicas() == int(p.GetReplicas()) && p.GetFormat() >= minFormat && p.GetFormat() <= f.n.maxFormat()
}

// ForgetPlan drops the founding plan that is stored in dir, whose node must not be running, so that the node can found or join another
// cluster. It is the way out when a node of the plan was lost for good before it stored the plan: Status shows such a plan as
// Pending, and it would wait for ever. Call it only if that is so, on the nodes that remain. It fails with ErrInvalid if
// dir has no plan or belongs to a founded cluster, which it never leaves, and with ErrDirLocked while the node runs.
func ForgetPlan(dir string) error {
	e, err := env.System()
	if err != nil {
		return fmt.Errorf("forget plan: %w", err)
	}
	return errors.Join(forgetPlan(e, dir), e.Clock.Close())
}

func forgetPlan(e *env.Env, dir string) error {
	if _, err := e.FS.Stat(e.FS.PathJoin(dir, identityFile)); err != nil {
		return fmt.Errorf("forget plan: %w: %q is no node's directory: %w", ErrInvalid, dir, err)
	}
	h, err := openHome(e, dir, math.MaxUint32)
	if err != nil {
		return fmt.Errorf("forget plan: %w", err)
	}
	return errors.Join(h.forgetPlan(), h.close())
}

func (h *home) forgetPlan() error {
	switch {
	case h.id.Founded:
		return fmt.Errorf("forget plan: %w: %q belongs to cluster %s", ErrInvalid, h.dir, h.plan.GetCluster())
	case h.plan == nil:
		return fmt.Errorf("forget plan: %w: %q has none", ErrInvalid, h.dir)
	}
	h.id.Refused = append(h.id.Refused, h.plan.GetId())
	h.plan = nil
	return h.save()
}
