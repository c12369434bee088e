package owner

// This and the other model_*_test.go files are an executable specification of a shard's ownership: an abstract Raft group of
// three nodes with real logs, forwarding, stale views and slow application, the owner's loops around it, one session with its
// holder, and everything that may go wrong: lost messages, lost answers, elections at any time, restarts, pauses (a node
// just takes no step) and clocks that drift. A search takes the steps in every order, or in many random ones, and checks
// the guarantees after each. All decisions are those of this package and of fsm's rules: a mutant replaces one of them.
//
// Time is discrete: a tick is 100 units on every clock. A drift event makes one clock gain or lose driftUnits within one tick,
// and then all are even for calmTicks: that is one per cent of a lease of two ticks. That is coarse; what Stretch has to cover to
// the unit is searched with clocks that run at their own rates throughout (bounds.step).

import (
	"time"

	"github.com/oarlock/oarlock/fsm"
)

const (
	members    = 3
	maxLog     = 12
	tickUnits  = 100
	driftUnits = 2
	calmTicks  = 5
)

// unit is how the model's instants become the rules' durations.
func unit(t int32) time.Duration { return time.Duration(t) }

var names = [members]string{"a", "b", "c"}

type kind uint8

const (
	noop kind = 1 + iota
	claimEntry
	releaseEntry
	writeEntry
	openEntry
	renewEntry
	checkpointEntry
	expireEntry
)

var kindNames = [...]string{"", "noop", "claim", "release", "write", "open", "renew", "checkpoint", "expire"}

// An entry is in a log, in the network, or on its way to it. raftTerm is the term it was appended in, which the state machine
// does not see; the zero entry is none.
type entry struct {
	kind                         kind
	raftTerm                     uint8
	node, incarnation, attempt   uint8
	term, replaces, stamp, about uint8 // of a claim; of anything else; about: what a checkpoint is about
	keep                         bool
	span                         int16 // waited, or silent
}

// A machine is the replicated state.
type machine struct {
	claim   fsm.Claim
	minted  fsm.Token
	version uint8
	session uint8 // one of the constants below
	life    fsm.Life
}

const (
	noSession uint8 = iota
	liveSession
	endedSession
)

// replica is a node's part in Raft.
type replica struct {
	term, leader       uint8 // leader: index + 1, 0 if unknown
	leads              bool
	pubLeader, pubTerm uint8 // what GetLeaderID says
	length, commit, at uint8 // at: applied
	log                [maxLog]entry
}

// A read is the one linearizable read that a node has in flight.
type read struct {
	phase    uint8 // readIdle …
	forClaim bool
	term     uint8 // published when it was asked for
	index    uint8
	t0       int32
}

const (
	readIdle uint8 = iota
	readQueued
	readRegistered // at this node, as leader
	readForwarded
	readAcked
)

// A slot is a proposal in flight.
type slot struct {
	phase    uint8 // slotFree …
	e        entry
	term     uint8 // of the ownership, or the claim, when it was proposed
	t0       int32
	accepted bool
	token    uint8 // that stood after it was applied
	version  uint8
}

const (
	slotFree uint8 = iota
	slotQueued
	slotAway
	slotApplied // and nobody has looked yet
)

// claiming is a node's attempt to own.
type claiming struct {
	phase  uint8 // claimIdle …
	term   uint8
	t0     int32
	readAt int32
	plan   Plan
	slot   slot
}

const (
	claimIdle uint8 = iota
	claimConfirming
	claimWaiting
	claimProposed
)

// owning is a node's belief.
type owning struct {
	token, term uint8
	word        int64 // of the lease
	known       bool  // the session is in memory
	doubt       bool  // an expiry's outcome is not known
	session     Session
}

// A member is one process.
type member struct {
	now         int32
	incarnation uint8
	raft        replica
	machine     machine
	read        read
	claim       claiming
	own         owning
	batch       slot
	queue       [2]entry // operations that wait to be proposed, in any order
}

// A message is between the holder and an owner.
type message struct {
	phase, at, token uint8 // token: of the owner that holds it
	sent             int32
}

const (
	noMessage uint8 = iota
	renewalSent
	renewalHeld  // until it is applied
	renewalKnown // applied, and not yet in the owner's memory
	renewalAnswered
	openSent
	openHeld
	openAnswered
)

// holder is the process that has the session.
type holder struct {
	now   int32
	first int32 // when it first asked for the session
	asked bool
	has   bool
	word  int64
}

// state is everything. It is comparable and copied freely.
type state struct {
	nodes                              [members]member
	holder                             holder
	messages                           [2]message
	network                            [2]entry // forwarded proposals
	maxTerm                            uint8
	calm                               uint8 // ticks until a clock may drift again
	seen                               uint8 // the largest version that was acknowledged or read
	believed                           uint8 // the largest token that anyone believed in
	expired                            bool  // the session's end was applied somewhere
	writes, releases, restarts, drifts uint8
}

// bounds are a search's limits and its start.
type bounds struct {
	lease                      [members]int32
	ttl                        int32
	terms, length              uint8
	writes, releases, restarts uint8
	drifts, forwards, messages uint8
	step                       [members + 1]int32 // of each clock in a tick, the holder's last; 0: tickUnits, and drifts
	sessions                   bool
	eager                      bool         // see settle
	script                     []action     // the first steps of every path
	prepare                    func(*state) // changes the start
}

// start is a group whose first node owns the shard, under token 1 in term 1, with a hot session if there are sessions.
func (m *model) start() state {
	s := state{maxTerm: 1, believed: 1}
	for i := range s.nodes {
		n := &s.nodes[i]
		n.incarnation = 1
		n.raft = replica{term: 1, leader: 1, pubLeader: 1, pubTerm: 1, length: 2, commit: 2, at: 2}
		n.raft.log[0] = entry{kind: noop, raftTerm: 1}
		n.raft.log[1] = entry{kind: claimEntry, raftTerm: 1, term: 1, incarnation: 1}
		n.machine = machine{minted: 2, claim: fsm.Claim{Token: 1, Node: names[0], Incarnation: 1, Term: 1, Lease: unit(m.lease[0])}}
		if m.sessions {
			n.machine.session = liveSession
			n.machine.life = fsm.Life{Heard: 2}
		}
	}
	n := &s.nodes[0]
	n.raft.leads = true
	n.own = owning{token: 1, term: 1, word: int64(m.lease[0])}
	if m.sessions {
		n.own.known = true
		n.own.session = Session{TTL: unit(m.ttl), Hot: true}
		s.holder = holder{has: true, asked: true, word: int64(m.ttl)}
	}
	if m.prepare != nil {
		m.prepare(&s)
	}
	for _, a := range m.script {
		m.do(&s, a)
	}
	return s
}

// view is what the node's Raft publishes now.
func (s *state) view(i int) View {
	r := &s.nodes[i].raft
	return View{Self: int(r.pubLeader) == i+1, Term: uint64(r.pubTerm)}
}

func (m *model) me(s *state, i int) ID {
	return ID{Node: names[i], Incarnation: uint64(s.nodes[i].incarnation)}
}

// good says whether node i trusts its lease.
func (m *model) good(s *state, i int) bool {
	n := &s.nodes[i]
	return n.own.token != 0 && m.rules.lease.good(n.own.word, unit(n.now))
}

// end ends what node i believes, for ever: what it had in flight is left to itself.
func (s *state) end(i int) {
	n := &s.nodes[i]
	n.own.word = ended
	n.batch, n.queue = slot{}, [2]entry{}
	n.own.known, n.own.session, n.own.doubt = false, Session{}, false
	s.release(i)
}

// release lets the messages that node i holds go unanswered.
func (s *state) release(i int) {
	for k := range s.messages {
		x := &s.messages[k]
		if (x.phase == renewalHeld || x.phase == openHeld) && int(x.at) == i {
			*x = message{}
		}
	}
}
