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
	order    []*session // by id, which is the order of creation
	nonces   map[[NonceSize]byte]*session
	locks    map[string]*lock
}

// counters are the shard's numbers that only rise.
type counters struct {
	version  uint32
	tokens   Token // the last one minted
	revision Revision
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
	refs        []ref        // by seq
	ended       bool
	dirty       bool // to be written at the end of the running Apply
}

// remembered is the stored result of one operation. The result is shared with readers and never changed in place.
type remembered struct {
	seq    uint64
	result *fsmpb.Result
}

// ref says that the session's operation seq holds or waits for a lock.
type ref struct {
	seq  uint64
	lock *lock
}

// lock is one name's queue. A lock that nobody holds or waits for does not exist.
type lock struct {
	name    string
	holders []holder
	waiters []waiter // first come, first served
}

// mode is how a holder shares a lock with others.
type mode uint8

// exclusive is the mode of a mutex: the holder is alone.
const exclusive mode = 1

// claimant is what holders and waiters have in common: who, and for what.
type claimant struct {
	session *session
	seq     uint64
	mode    mode
	permits uint32
	value   []byte
}

// holder is a granted claimant.
type holder struct {
	claimant
	token Token
}

// waiter is a queued claimant. Tickets rise along the queue.
type waiter struct {
	claimant
	ticket uint64
}

func newState(version uint32, first Token) *state {
	return &state{
		counters: counters{version: version, tokens: first},
		sessions: map[Token]*session{},
		nonces:   map[[NonceSize]byte]*session{},
		locks:    map[string]*lock{},
	}
}

// add enters a session. Ids only rise, so it belongs at the end.
func (st *state) add(s *session) {
	st.sessions[s.id] = s
	st.order = append(st.order, s)
	st.nonces[s.nonce] = s
}

// remove drops sessions that have ended, all at once: the order is rebuilt only once.
func (st *state) remove(ended []*session) {
	for _, s := range ended {
		delete(st.sessions, s.id)
		delete(st.nonces, s.nonce)
	}
	st.order = slices.DeleteFunc(st.order, func(s *session) bool { return s.ended })
}

// holds reports whether name is held under token.
func (st *state) holds(name string, token Token) bool {
	l := st.locks[name]
	return l != nil && l.holder(token) >= 0
}

// find is the position of the result of seq, and whether there is one.
func (s *session) find(seq uint64) (int, bool) {
	if n := len(s.results); n == 0 || s.results[n-1].seq < seq {
		return n, false // the usual case: the newest operation
	}
	return slices.BinarySearchFunc(s.results, seq, func(r remembered, seq uint64) int { return cmp.Compare(r.seq, seq) })
}

// refer enters a ref, in order of seq.
func (s *session) refer(r ref) {
	i, _ := slices.BinarySearchFunc(s.refs, r.seq, compareRef)
	s.refs = slices.Insert(s.refs, i, r)
}

// unrefer drops the ref of seq to l.
func (s *session) unrefer(seq uint64, l *lock) {
	i, _ := slices.BinarySearchFunc(s.refs, seq, compareRef)
	for ; i < len(s.refs) && s.refs[i].seq == seq; i++ {
		if s.refs[i].lock == l {
			s.refs = slices.Delete(s.refs, i, i+1)
			return
		}
	}
}

// ref is the lock that operation seq holds or waits for, nil if none.
func (s *session) ref(seq uint64) *lock {
	i, ok := slices.BinarySearchFunc(s.refs, seq, compareRef)
	if !ok {
		return nil
	}
	return s.refs[i].lock
}

func compareRef(r ref, seq uint64) int { return cmp.Compare(r.seq, seq) }

// admits reports whether one more claimant of that mode may be granted beside the holders. It is the whole
// difference between kinds of locks.
func (l *lock) admits(mode) bool { return len(l.holders) == 0 }

// holder is the position of the grant with that token, -1 if there is none.
func (l *lock) holder(token Token) int {
	return slices.IndexFunc(l.holders, func(h holder) bool { return h.token == token })
}

// held is the position of the grant of a session's operation, -1 if there is none.
func (l *lock) held(s *session, seq uint64) int {
	return slices.IndexFunc(l.holders, func(h holder) bool { return h.session == s && h.seq == seq })
}

// waits is the position in the queue of a session's operation, -1 if it does not wait.
func (l *lock) waits(s *session, seq uint64) int {
	return slices.IndexFunc(l.waiters, func(w waiter) bool { return w.session == s && w.seq == seq })
}

// ticket is the number of the next place in the queue.
func (l *lock) ticket() uint64 {
	if n := len(l.waiters); n > 0 {
		return l.waiters[n-1].ticket + 1
	}
	return 1
}

// idle reports whether nobody holds or waits for the lock.
func (l *lock) idle() bool { return len(l.holders) == 0 && len(l.waiters) == 0 }
