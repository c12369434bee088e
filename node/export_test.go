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
