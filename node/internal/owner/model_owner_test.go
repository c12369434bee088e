package owner

import (
	"fmt"

	"github.com/oarlock/oarlock/fsm"
)

func (m *model) ownerMoves(s *state, i int, add func(action)) {
	n := &s.nodes[i]
	v := s.view(i)
	both := func(mv move, args ...int) { // Raft takes it later, or at once as leader
		add(act(mv, append([]int{i, 0}, args...)...))
		if n.raft.leads && n.raft.room(m) {
			add(act(mv, append([]int{i, 1}, args...)...))
		}
	}
	if v.Self && n.read.phase == readIdle {
		if n.claim.phase == claimIdle && !(m.good(s, i) && m.rules.lease.extends(uint64(n.own.term), v.Term)) {
			both(claimStart)
		}
		if n.own.token != 0 && n.own.word != ended && m.rules.lease.leads(v, uint64(n.own.term)) {
			both(confirmStart)
		}
	}
	if n.claim.phase == claimWaiting {
		if m.rules.claim.mayClaim(n.claim.plan, unit(n.claim.t0), unit(n.now)) {
			both(claimPropose)
		}
		if !Leads(v, uint64(n.claim.term)) {
			add(act(claimGiveUp, i))
		}
	}
	for k, x := range [2]*slot{&n.claim.slot, &n.batch} {
		switch x.phase {
		case slotQueued:
			if m.takeable(s, i) {
				add(act(take, i, k))
			}
		case slotAway:
			add(act(giveUp, i, k))
		case slotApplied:
			add(act(look, i, k))
		}
	}
	if n.own.token != 0 && n.own.word != ended {
		if !m.good(s, i) {
			add(act(lapse, i))
		}
		m.workMoves(s, i, add, both)
	}
	if s.restarts < m.restarts {
		add(act(restart, i))
	}
}

// workMoves are those of a node that believes, or did until its lease lapsed a moment ago.
func (m *model) workMoves(s *state, i int, add func(action), both func(move, ...int)) {
	n := &s.nodes[i]
	room := n.queue[0].kind == 0 || n.queue[1].kind == 0
	if n.batch.phase == slotFree {
		for k, e := range n.queue {
			if e.kind != 0 {
				both(proposeQueued, k)
			}
		}
	}
	if !m.good(s, i) {
		return
	}
	if room && s.writes < m.writes {
		add(act(write, i))
	}
	if n.batch.phase == slotFree && s.releases < m.releases {
		both(release)
	}
	if !n.own.known || !room {
		return
	}
	// An owner adds to the deadline what its loop was late by: that only puts the end off, so no lateness stands for every one (TestExpires_LatenessPutsOff).
	if m.rules.session.expires(n.own.session, unit(n.now), 0) || n.own.doubt && n.batch.e.kind != expireEntry && !n.queued(expireEntry) {
		add(act(expire, i))
	}
	if m.rules.session.checkpoints(n.own.session, unit(n.now)) {
		add(act(checkpoint, i))
	}
}

func (n *member) queued(k kind) bool { return n.queue[0].kind == k || n.queue[1].kind == k }

func (n *member) enqueue(e entry) {
	e.stamp = n.own.token
	if n.queue[0].kind != 0 {
		n.queue[1] = e
		return
	}
	n.queue[0] = e
}

// from is the instant that a confirmation counts from.
func (m *model) from(t0, now int32) int32 {
	if m.rules.broken.leaseFromDone {
		return now
	}
	return t0
}

func (m *model) extend(s *state, i int, t0 int32) {
	n := &s.nodes[i]
	n.own.word = m.rules.lease.extend(n.own.word, unit(n.now), LeaseUntil(unit(m.from(t0, n.now)), unit(m.lease[i])))
}

// readDone is a confirmation that has come to its end, of the lease or before a claim.
func (m *model) readDone(s *state, i int) {
	n := &s.nodes[i]
	r := n.read
	n.read = read{}
	ok := m.rules.claim.confirmed(View{Self: true, Term: uint64(r.term)}, s.view(i))
	if !r.forClaim {
		if ok && n.own.token != 0 && m.rules.lease.extends(uint64(n.own.term), uint64(r.term)) {
			m.extend(s, i, r.t0)
		}
		return
	}
	if !ok {
		n.claim = claiming{}
		return
	}
	held := fsm.Token(0)
	if m.good(s, i) {
		held = fsm.Token(n.own.token)
	}
	n.claim.phase, n.claim.readAt = claimWaiting, n.now
	if m.rules.broken.waitedFromStart {
		n.claim.readAt = n.claim.t0
	}
	n.claim.plan = m.rules.claim.plan(n.machine.claim, m.me(s, i), held, false)
}

func (m *model) proposeClaim(s *state, i int, atOnce bool) {
	n := &s.nodes[i]
	if !n.claim.plan.Keep && n.own.token != 0 && !m.rules.broken.endAfterClaim {
		s.end(i)
	}
	n.claim.phase = claimProposed
	e := entry{kind: claimEntry, term: n.claim.term, replaces: uint8(n.claim.plan.Replaces), keep: n.claim.plan.Keep}
	if m.sessions {
		e.span = int16(n.now - n.claim.readAt)
	}
	m.propose(s, i, &n.claim.slot, e, n.claim.term, atOnce)
}

// handOver ends the lease, and only then proposes the release with what is known of the session.
func (m *model) handOver(s *state, i int, atOnce bool) {
	n := &s.nodes[i]
	e := entry{kind: releaseEntry, stamp: n.own.token}
	if n.own.known && (!n.own.session.Renewing || m.rules.broken.releaseRenewing) {
		e.span, e.about = int16(Silence(n.own.session, unit(n.now))), uint8(n.machine.life.Heard)
	}
	term, word := n.own.term, n.own.word
	s.end(i)
	if m.rules.broken.endAfterRelease {
		n.own.word = word
	}
	s.releases++
	m.propose(s, i, &n.batch, e, term, atOnce)
}

// applyNext applies one entry at node i. What its observer does happens at once; the proposer looks later.
func (m *model) applyNext(s *state, i int) (breach string) {
	n := &s.nodes[i]
	e := n.raft.log[n.raft.at]
	n.raft.at++
	was := n.machine.session
	a := m.apply(&n.machine, e)
	if a.breach != "" {
		return a.breach
	}
	s.expired = s.expired || a.expired
	if e.kind == claimEntry && a.accepted && n.own.token != 0 && fsm.Token(n.own.token) != n.machine.claim.Token && !m.rules.broken.endAfterClaim {
		s.end(i)
	}
	if a.expired && n.own.known {
		n.own.known, n.own.session, n.own.doubt = false, Session{}, false
	}
	if e.kind == openEntry && was == noSession && n.machine.session == liveSession && n.own.token != 0 && n.own.word != ended {
		m.adopt(s, i)
	}
	for _, x := range [2]*slot{&n.claim.slot, &n.batch} {
		if x.phase == slotAway && e.kind == x.e.kind && e.attemptOf(x.e) {
			x.phase, x.accepted, x.token, x.version = slotApplied, a.accepted, uint8(n.machine.claim.Token), n.machine.version
		}
	}
	return ""
}

// look is the proposer learning what came of its entry, maybe long after it was applied.
func (m *model) look(s *state, i, which int) (breach string) {
	n := &s.nodes[i]
	if which == 0 {
		return m.lookAtClaim(s, i)
	}
	x := n.batch
	n.batch = slot{}
	if x.e.kind == releaseEntry {
		return ""
	}
	if !x.accepted {
		s.end(i)
		return ""
	}
	if m.rules.lease.leads(s.view(i), uint64(x.term)) && m.rules.lease.extends(uint64(n.own.term), uint64(x.term)) {
		m.extend(s, i, x.t0)
	}
	if x.e.kind == writeEntry {
		s.seen = max(s.seen, x.version)
	}
	m.answer(s, i, x.e)
	return ""
}

func (m *model) lookAtClaim(s *state, i int) (breach string) {
	n := &s.nodes[i]
	x, keep := n.claim.slot, n.claim.plan.Keep
	n.claim = claiming{}
	if !m.rules.claim.owns(uint64(x.e.attempt), uint64(x.e.attempt), x.accepted, s.view(i), uint64(x.term)) {
		return ""
	}
	if keep {
		if m.extend(s, i, x.t0); n.own.word == ended {
			s.end(i)
			return ""
		}
		n.own.term = x.term
		return ""
	}
	s.end(i)
	n.own = owning{token: x.token, term: x.term, word: int64(LeaseUntil(unit(m.from(x.t0, n.now)), unit(m.lease[i])))}
	if !m.good(s, i) || n.machine.claim.Token != fsm.Token(x.token) {
		s.end(i)
		return ""
	}
	if x.token <= s.believed {
		return fmt.Sprintf("(e) node %s believes in token %d after %d was believed in", names[i], x.token, s.believed)
	}
	s.believed = x.token
	if n.machine.session == liveSession {
		m.adopt(s, i)
	}
	return ""
}

// gone is a proposal that was dropped, or of which nothing was heard in time.
func (m *model) gone(s *state, i int, x *slot, unknown bool) {
	e := x.e
	*x = slot{}
	if e.kind == claimEntry {
		s.nodes[i].claim = claiming{}
		return
	}
	m.unanswered(s, i, e, unknown)
}

// restarted is a new incarnation: only the log and the state are left.
func (s *state) restarted(i int) {
	s.restarts++
	s.release(i)
	s.reply(i, renewalKnown, noMessage)
	n := &s.nodes[i]
	r := n.raft
	r.leader, r.leads, r.pubLeader, r.pubTerm = 0, false, 0, 0
	*n = member{now: n.now, incarnation: n.incarnation + 1, raft: r, machine: n.machine}
}
