package node

// Contexts counts the contexts that hang on this node's implicit session with the shard.
func Contexts(n *Node, shard int) int {
	m := &n.group(shard).sessions
	m.mu.Lock()
	s := m.current
	m.mu.Unlock()
	if s == nil {
		return 0
	}
	s.hold.mu.Lock()
	defer s.hold.mu.Unlock()
	return len(s.hold.ctxs)
}

// Holds counts the grants that hang on this node's implicit session with the shard.
func Holds(n *Node, shard int) int {
	m := &n.group(shard).sessions
	m.mu.Lock()
	s := m.current
	m.mu.Unlock()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds)
}

// HandOver makes n, which owns the shard, hand it over to another node, as it does to balance.
func HandOver(n *Node, shard int, to string) {
	g := n.group(shard)
	if o := g.owned(); o != nil {
		_ = o.handOver(n.life.ctx, g.replicaOn(to))
	}
}

// Depose makes n, which leads the shard's Raft group, give the leadership to another node without a release: the next owner waits for the
// lease.
func Depose(n *Node, shard int, to string) {
	g := n.group(shard)
	_ = n.disk.host.Transfer(g.id, g.replicaOn(to))
}

// Reopen has the node hear once more that its replica of the shard was opened.
func Reopen(n *Node, shard int) {
	l := n.group(shard).local
	l.Opened(l.machine.Load())
}

// Waited counts the prefixes of the shard's records that somebody waits for here.
func Waited(n *Node, shard int) int {
	f := &n.group(shard).feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.m) + len(f.lengths)
}
