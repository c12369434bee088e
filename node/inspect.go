package node

import "context"

// inspector is what tests see of a node's inside.
type inspector struct{ n *Node }

// State is what env.Inspector promises.
func (i inspector) State(shard int) (applied, hash uint64, ok bool) {
	g := i.n.group(shard)
	if g == nil || g.local == nil {
		return 0, 0, false
	}
	m := g.local.machine.Load()
	if m == nil {
		return 0, 0, false
	}
	applied = m.Applied()
	hash, err := m.Hash()
	return applied, hash, err == nil
}

// Leads is what env.Inspector promises.
func (i inspector) Leads(shard int) (leads bool, term uint64) {
	g := i.n.group(shard)
	if g == nil || g.local == nil {
		return false, 0
	}
	v := g.local.view()
	return v.Self, v.Term
}

// Transfer is what env.Inspector promises.
func (i inspector) Transfer(shard int, node string) error {
	g := i.n.group(shard)
	return i.n.disk.host.Transfer(g.id, g.replicaOn(node))
}

// Propose is what env.Inspector promises.
func (i inspector) Propose(ctx context.Context, shard int, entry []byte) error {
	return i.n.disk.host.Propose(ctx, i.n.group(shard).id, entry, i.n.c.ElectionTimeout)
}
