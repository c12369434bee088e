package node

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// minFormat is the oldest cluster format version that this binary speaks.
const minFormat = 1

// newPlan lays out a cluster over the given nodes.
func newPlan(c Config, format uint32, nodes []string) *wire.Plan {
	shards := c.Shards
	if shards == 0 {
		shards = defaultShards
	}
	p := &wire.Plan{
		Id:       uuid.NewString(),
		Cluster:  uuid.NewString(),
		Format:   format,
		Shards:   uint32(shards),
		Replicas: uint32(c.Replicas),
		Nodes:    nodes,
		Proposer: nodes[0],
	}
	copies := min(c.Replicas, len(nodes))
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

// matches says what of the config contradicts a cluster's plan.
func (c Config) matches(p *wire.Plan) error {
	if c.Shards != 0 && c.Shards != int(p.GetShards()) {
		return fmt.Errorf("%w: Config.Shards = %d: the cluster was founded with %d: give that, or zero", ErrInvalid, c.Shards, p.GetShards())
	}
	return nil
}

// acceptable says whether this node would found the cluster of that plan.
func (f *founding) acceptable(p *wire.Plan) bool {
	return f.n.c.Bootstrap > 0 && f.n.c.Bootstrap == len(p.GetNodes()) && slices.Contains(p.GetNodes(), f.n.ID()) &&
		f.n.c.matches(p) == nil && p.GetFormat() >= minFormat && p.GetFormat() <= f.n.maxFormat()
}
