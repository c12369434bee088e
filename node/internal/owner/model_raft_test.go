package owner

// Raft, abstractly: an election is one step, with the vote of one other member; an append brings a follower the leader's whole
// log in one step, and its acknowledgement is lost or arrives.

func (r *replica) follow(term, leader uint8) (deposed bool) {
	if r.term == term && !r.leads {
		r.leader = leader
		return false
	}
	deposed = r.leads
	r.term, r.leads, r.leader = term, false, leader
	return deposed
}

func (s *state) follow(i int, term, leader uint8) {
	n := &s.nodes[i]
	if n.raft.follow(term, leader); n.read.phase == readRegistered && !n.raft.leads {
		s.dropRead(i)
	}
}

// published says whether GetLeaderID says what is so.
func (r *replica) published() bool { return r.pubLeader == r.leader && r.pubTerm == r.term }

// ready says whether a leader has committed an entry of its term: before that it answers no reads.
func (r *replica) ready() bool { return r.leads && r.log[r.commit-1].raftTerm == r.term }

func (r *replica) room(m *model) bool { return r.length < m.length }

func upToDate(a, b *replica) bool {
	at, bt := a.log[a.length-1].raftTerm, b.log[b.length-1].raftTerm
	return at > bt || at == bt && a.length >= b.length
}

func (r *replica) push(e entry) {
	e.raftTerm = r.term
	r.log[r.length] = e
	r.length++
}

func (m *model) raftMoves(s *state, i int, add func(action)) {
	n := &s.nodes[i]
	r := &n.raft
	for j := range s.nodes {
		if j == i {
			continue
		}
		if s.maxTerm < m.terms && r.room(m) && upToDate(r, &s.nodes[j].raft) {
			add(act(elect, i, j))
		}
		if b := &s.nodes[j].raft; r.leads && b.term <= r.term {
			news := b.term != r.term || int(b.leader) != i+1 || b.length != r.length || b.commit != r.commit
			if news {
				add(act(appendLost, i, j))
			}
			if news || r.commit < r.length || n.read.phase == readRegistered {
				add(act(appendOK, i, j))
			}
		}
	}
	if !r.published() {
		add(act(publish, i))
	}
	if r.at < r.commit {
		add(act(applyNext, i))
	}
	switch n.read.phase {
	case readQueued:
		if r.leads || r.leader == 0 || r.published() || m.rules.broken.forwardEarly {
			add(act(readHandle, i))
		}
	case readForwarded:
		for k := range s.nodes {
			l := &s.nodes[k].raft
			for j := range s.nodes {
				if k != i && j != k && l.ready() && r.term <= l.term && s.nodes[j].raft.term <= l.term {
					add(act(readServe, i, k, j))
				}
			}
		}
	case readAcked:
		if r.at >= n.read.index {
			add(act(readDone, i))
		}
	}
	if n.read.phase != readIdle {
		add(act(readGiveUp, i))
	}
}

func (m *model) elected(s *state, i, j int) {
	s.maxTerm++
	s.follow(j, s.maxTerm, 0)
	s.follow(i, s.maxTerm, uint8(i+1))
	r := &s.nodes[i].raft
	r.leads, r.pubLeader, r.pubTerm = true, uint8(i+1), s.maxTerm
	r.push(entry{kind: noop})
}

func (m *model) appended(s *state, i, j int, answered bool) (breach string) {
	a, b := &s.nodes[i], &s.nodes[j]
	for k := range b.raft.commit {
		if k >= a.raft.length || a.raft.log[k] != b.raft.log[k] {
			return "the model's Raft lost a committed entry"
		}
	}
	s.follow(j, a.raft.term, uint8(i+1))
	b.raft.log, b.raft.length = a.raft.log, a.raft.length
	b.raft.commit = max(b.raft.commit, a.raft.commit)
	if !answered {
		return ""
	}
	if a.raft.log[a.raft.length-1].raftTerm == a.raft.term {
		a.raft.commit = a.raft.length
	}
	if a.read.phase == readRegistered {
		a.read.phase = readAcked
	}
	return ""
}

// ask asks for a linearizable read; at once: Raft takes it from its queue in the same step.
func (s *state) ask(i int, forClaim, atOnce bool) {
	n := &s.nodes[i]
	n.read = read{phase: readQueued, forClaim: forClaim, term: n.raft.pubTerm, t0: n.now}
	if atOnce {
		s.takeRead(i)
	}
}

func (s *state) takeRead(i int) {
	n := &s.nodes[i]
	switch {
	case n.raft.ready():
		n.read.phase, n.read.index = readRegistered, n.raft.commit
	case !n.raft.leads && n.raft.leader != 0:
		n.read.phase = readForwarded
	default:
		s.dropRead(i)
	}
}

func (s *state) dropRead(i int) {
	n := &s.nodes[i]
	if n.read.forClaim && n.claim.phase == claimConfirming {
		n.claim = claiming{}
	}
	n.read = read{}
}

// serveRead is the leader k answering node i's forwarded read after member j acknowledged that it leads.
func (s *state) serveRead(i, k, j int) {
	l := &s.nodes[k].raft
	s.follow(j, l.term, uint8(k+1))
	s.follow(i, l.term, uint8(k+1))
	n := &s.nodes[i]
	n.read.phase, n.read.index = readAcked, l.commit
}

// propose puts an entry into a slot; attempts are told apart from all that may yet be applied.
func (m *model) propose(s *state, i int, x *slot, e entry, term uint8, atOnce bool) {
	n := &s.nodes[i]
	e.node, e.incarnation, e.attempt = uint8(i), n.incarnation, 1
	for !m.rules.broken.oneAttempt && s.inUse(e) {
		e.attempt++
	}
	*x = slot{phase: slotQueued, e: e, term: term, t0: n.now}
	if atOnce {
		m.takeProposal(s, i, x)
	}
}

func (e entry) attemptOf(o entry) bool {
	return e.kind != 0 && e.kind != noop && e.node == o.node && e.incarnation == o.incarnation && e.attempt == o.attempt
}

func (s *state) inUse(e entry) bool {
	for i := range s.nodes {
		n := &s.nodes[i]
		for _, x := range n.raft.log[:n.raft.length] {
			if x.attemptOf(e) {
				return true
			}
		}
		if n.batch.e.attemptOf(e) || n.claim.slot.e.attemptOf(e) {
			return true
		}
	}
	return s.network[0].attemptOf(e) || s.network[1].attemptOf(e)
}

// takeable says whether Raft can take the slot's proposal from its queue now.
func (m *model) takeable(s *state, i int) bool {
	r := &s.nodes[i].raft
	switch {
	case r.leads:
		return r.room(m)
	case r.leader == 0:
		return true
	default:
		return (r.published() || m.rules.broken.forwardEarly) && s.freeNetwork(m) >= 0
	}
}

func (s *state) freeNetwork(m *model) int {
	for k := range m.forwards {
		if s.network[k].kind == 0 {
			return int(k)
		}
	}
	return -1
}

// takeProposal appends it as leader, forwards it as follower, or drops it.
func (m *model) takeProposal(s *state, i int, x *slot) {
	r := &s.nodes[i].raft
	switch {
	case r.leads:
		r.push(x.e)
		x.phase = slotAway
	case r.leader == 0:
		m.gone(s, i, x, false)
	default:
		s.network[s.freeNetwork(m)] = x.e
		x.phase = slotAway
	}
}
