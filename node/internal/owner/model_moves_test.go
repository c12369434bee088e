package owner

import (
	"fmt"
	"strings"
)

type move uint8

const (
	tick move = iota
	elect
	appendLost
	appendOK
	publish
	applyNext
	readHandle
	readServe
	readDone
	readGiveUp
	claimStart
	confirmStart
	claimPropose
	claimGiveUp
	take
	giveUp
	look
	lapse
	proposeQueued
	write
	release
	expire
	checkpoint
	restart
	carry
	lose
	send
	deliver
	account
	receive
	drop
	moves
)

var moveNames = [moves]string{"tick", "elect", "append, answer lost", "append", "publish", "apply", "raft takes read", "leader serves read", "read done",
	"read given up", "begin claim", "begin confirmation", "propose claim", "give claim up", "raft takes proposal", "proposal given up", "look at outcome",
	"lapse", "propose", "write", "release", "expire", "checkpoint", "restart", "deliver forwarded", "lose forwarded", "holder sends", "deliver", "owner notes renewal",
	"holder receives", "lose message"}

// even is a tick on which no clock drifts.
const even = 255

// An action is a move and what it is about: nodes, slots, messages.
type action struct {
	move    move
	a, b, c uint8
}

func act(mv move, args ...int) action {
	var x [3]uint8
	for i, a := range args {
		x[i] = uint8(a)
	}
	return action{mv, x[0], x[1], x[2]}
}

// String names the action; numbers count from 0, a 3 among clocks is the holder's.
func (a action) String() string {
	if a.move == tick && a.a == even {
		return "tick"
	}
	return fmt.Sprintf("%s (%d, %d, %d)", moveNames[a.move], a.a, a.b, a.c)
}

// A model is the rules, the bounds, and what follows from them.
type model struct {
	bounds
	rules rules
}

// enabled calls add for each step that can be taken in s.
func (m *model) enabled(s *state, add func(action)) {
	add(act(tick, even))
	if s.calm == 0 && s.drifts < m.drifts {
		for who := range members + 1 {
			if who < members || m.sessions {
				add(act(tick, who, 0))
				add(act(tick, who, 1))
			}
		}
	}
	for i := range s.nodes {
		m.raftMoves(s, i, add)
		m.ownerMoves(s, i, add)
	}
	for k := range s.network {
		if s.network[k].kind == 0 {
			continue
		}
		for i := range s.nodes {
			if r := &s.nodes[i].raft; r.leads && r.room(m) {
				add(act(carry, k, i))
			}
		}
		add(act(lose, k))
	}
	if m.sessions {
		m.sessionMoves(s, add)
	}
}

// do takes the step, and says what guarantee it broke, "" if none.
func (m *model) do(s *state, x action) (breach string) {
	i, j := int(x.a), int(x.b)
	switch x.move {
	case tick:
		m.ticked(s, i, x.b)
	case elect:
		m.elected(s, i, j)
	case appendLost, appendOK:
		breach = m.appended(s, i, j, x.move == appendOK)
	case publish:
		r := &s.nodes[i].raft
		r.pubLeader, r.pubTerm = r.leader, r.term
	case applyNext:
		breach = m.applyNext(s, i)
		for r := &s.nodes[i].raft; m.eager && breach == "" && r.at < r.commit; {
			breach = m.applyNext(s, i)
		}
	case readHandle:
		s.takeRead(i)
	case readServe:
		s.serveRead(i, j, int(x.c))
	case readDone:
		m.readDone(s, i)
	case readGiveUp:
		s.dropRead(i)
	case carry:
		s.nodes[j].raft.push(s.network[i])
		s.network[i] = entry{}
	case lose:
		s.network[i] = entry{}
	case send:
		m.sent(s, i)
	case deliver:
		m.delivered(s, i, j)
	case account:
		m.accounted(s, i)
	case receive:
		m.received(s, i)
	case drop:
		s.messages[i] = message{}
	default:
		breach = m.doOwner(s, x)
	}
	if m.eager && breach == "" {
		breach = m.settle(s)
	}
	if breach == "" {
		breach = m.check(s)
	}
	return breach
}

// settle lets nodes that have nothing going on publish and apply at once: nobody sees there how long that takes.
func (m *model) settle(s *state) (breach string) {
	for i := range s.nodes {
		n := &s.nodes[i]
		r := &n.raft
		if n.own.token != 0 && n.own.word != ended || n.claim.phase != claimIdle || n.read.phase != readIdle || n.batch.phase != slotFree {
			continue
		}
		r.pubLeader, r.pubTerm = r.leader, r.term
		for r.at < r.commit && breach == "" {
			breach = m.applyNext(s, i)
		}
	}
	return breach
}

func (m *model) doOwner(s *state, x action) (breach string) {
	i := int(x.a)
	n := &s.nodes[i]
	atOnce := x.b == 1
	switch x.move {
	case claimStart:
		n.claim = claiming{phase: claimConfirming, term: n.raft.pubTerm, t0: n.now}
		s.ask(i, true, atOnce)
	case confirmStart:
		s.ask(i, false, atOnce)
	case claimPropose:
		m.proposeClaim(s, i, atOnce)
	case claimGiveUp:
		n.claim = claiming{}
	case take:
		m.takeProposal(s, i, n.slot(x.b))
	case giveUp:
		m.gone(s, i, n.slot(x.b), true)
	case look:
		breach = m.look(s, i, int(x.b))
	case lapse:
		s.end(i)
	case proposeQueued:
		e := n.queue[x.c]
		n.queue[x.c] = entry{}
		m.propose(s, i, &n.batch, e, n.own.term, atOnce)
	case write:
		s.writes++
		n.enqueue(entry{kind: writeEntry})
	case release:
		m.handOver(s, i, atOnce)
	case expire:
		m.expire(s, i)
	case checkpoint:
		m.checkpoint(s, i)
	case restart:
		s.restarted(i)
	}
	return breach
}

func (n *member) slot(which uint8) *slot {
	if which == 0 {
		return &n.claim.slot
	}
	return &n.batch
}

// ticked lets every clock go on; who's gains or loses on the others.
func (m *model) ticked(s *state, who int, gains uint8) {
	if s.calm > 0 {
		s.calm--
	}
	if who != even {
		s.calm = calmTicks
		s.drifts++
	}
	step := func(clock int) int32 {
		switch {
		case m.step[clock] != 0:
			return m.step[clock]
		case clock != who:
			return tickUnits
		case gains == 1:
			return tickUnits + driftUnits
		default:
			return tickUnits - driftUnits
		}
	}
	for i := range s.nodes {
		s.nodes[i].now += step(i)
	}
	s.holder.now += step(members)
}

// check says which guarantee does not hold in s. A good owner's state is what a read would answer.
func (m *model) check(s *state) string {
	owner := -1
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.own.token == 0 || !Good(n.own.word, unit(n.now)) {
			continue
		}
		if owner >= 0 {
			return fmt.Sprintf("(a) nodes %s and %s own the shard at once", names[owner], names[i])
		}
		owner = i
		if n.machine.version < s.seen {
			return fmt.Sprintf("(c) owner %s reads version %d after %d was seen", names[i], n.machine.version, s.seen)
		}
		s.seen = n.machine.version
	}
	if s.expired && s.holder.has && Good(s.holder.word, unit(s.holder.now)) {
		return "(d) the session was ended, and its lock granted, while its holder trusts it"
	}
	return ""
}

// String is the state for a reader of a trace.
func (s *state) String() string {
	var b strings.Builder
	for i := range s.nodes {
		n := &s.nodes[i]
		fmt.Fprintf(&b, "  %s at %d: term %d", names[i], n.now, n.raft.term)
		if n.raft.leads {
			b.WriteString(" leads")
		}
		fmt.Fprintf(&b, ", published (%d, %d), commit %d, applied %d, log", int(n.raft.pubLeader)-1, n.raft.pubTerm, n.raft.commit, n.raft.at)
		for _, e := range n.raft.log[:n.raft.length] {
			fmt.Fprintf(&b, " %s", e)
		}
		c := n.machine.claim
		fmt.Fprintf(&b, "; claim {%d %s term %d released %v}, life %+v", c.Token, c.Node, c.Term, c.Released, n.machine.life)
		if n.own.token != 0 {
			fmt.Fprintf(&b, "; believes {token %d term %d until %d, session %v %+v}", n.own.token, n.own.term, n.own.word, n.own.known, n.own.session)
		}
		if n.claim.phase != claimIdle {
			fmt.Fprintf(&b, "; claims {phase %d term %d from %d plan %+v}", n.claim.phase, n.claim.term, n.claim.t0, n.claim.plan)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  holder at %d: until %d, messages %v, network %v\n", s.holder.now, s.holder.word, s.messages, s.network)
	return b.String()
}

func (e entry) String() string {
	switch e.kind {
	case 0:
		return "-"
	case noop:
		return fmt.Sprintf("noop@%d", e.raftTerm)
	case claimEntry:
		return fmt.Sprintf("claim(%s term %d replaces %d keep %v waited %d)@%d", names[e.node], e.term, e.replaces, e.keep, e.span, e.raftTerm)
	}
	return fmt.Sprintf("%s(%s stamp %d about %d span %d)@%d", kindNames[e.kind], names[e.node], e.stamp, e.about, e.span, e.raftTerm)
}
