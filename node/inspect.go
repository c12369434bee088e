package node

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
