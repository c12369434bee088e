package fsm

import (
	"cmp"
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// state is what the machine mirrors in memory: everything but the config records. It is loaded when the machine is
// opened or restored, so that applying an entry reads the disk only for records.
type state struct {
	claim    Claim
	counters counters
	sessions map[Token]*session
	order    roll[*session]     // by id, which is the order of creation
	members  map[string]*member // by node
	nonces   map[[NonceSize]byte]*session
	locks    map[lockKey]*lock
	names    ordered         // the same
	timed    roll[*claimant] // holders with a maxHold, by token
	closed   roll[*closure]
	jobs     map[string]*job
	kept     roll[*job]    // the completed ones that are wanted for a time only, in the order of completion
	passed   time.Duration // for which the shard has had owners, at least
}

// counters are the shard's numbers that only rise.
type counters struct {
	version  uint32
	tokens   Token // the last one minted
	revision Revision
	oldest   Revision // the first one whose history is kept, revision + 1 if there is none
}

// member is a node that has sessions. They share its name.
type member struct {
	name     string
	sessions roll[*session]
}

// session is one session. Its refs are its holds and places in queues.
type session struct {
	id          Token
	node        string
	incarnation uint64
	ttl         time.Duration
	nonce       [NonceSize]byte
	life        Life
	low         uint64       // acknowledged: results at or below are forgotten
	results     []remembered // by seq
	refs        []*claimant  // by seq
	ephemeral   int          // records that go with it
	ended       bool
	dirty       bool // to be written at the end of the running Apply
}

// remembered is the stored result of one operation. The result is shared with readers and never changed in place.
type remembered struct {
	seq    uint64
	result *fsmpb.Result
}

func newState(version uint32, first Token) *state {
	return &state{
		counters: counters{version: version, tokens: first, oldest: 1},
		sessions: map[Token]*session{},
		members:  map[string]*member{},
		nonces:   map[[NonceSize]byte]*session{},
		locks:    map[lockKey]*lock{},
		jobs:     map[string]*job{},
	}
}

// add enters a session. Ids only rise, so it belongs at the end.
func (st *state) add(s *session) {
	m := st.members[s.node]
	if m == nil {
		m = &member{name: s.node}
		st.members[s.node] = m
	}
	s.node = m.name
	m.sessions.add(s)
	st.sessions[s.id] = s
	st.order.add(s)
	st.nonces[s.nonce] = s
}

// remove drops sessions that have ended.
func (st *state) remove(ended []*session) {
	for _, s := range ended {
		delete(st.sessions, s.id)
		delete(st.nonces, s.nonce)
		m := st.members[s.node]
		if m.sessions.left(1); m.sessions.len() == 0 {
			delete(st.members, s.node)
		}
	}
	st.order.left(len(ended))
}

func (s *session) isGone() bool { return s.ended }

// find is the position of the result of seq, and whether there is one.
func (s *session) find(seq uint64) (int, bool) {
	if n := len(s.results); n == 0 || s.results[n-1].seq < seq {
		return n, false // the usual case: the newest operation
	}
	return slices.BinarySearchFunc(s.results, seq, func(r remembered, seq uint64) int { return cmp.Compare(r.seq, seq) })
}
