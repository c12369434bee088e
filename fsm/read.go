package fsm

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A Record is one config record.
type Record struct {
	Key     []byte
	Value   []byte
	Create  Revision // of the change that made the key
	Mod     Revision // of the last change
	Version int64    // changes since it was made, from 1
	Session Token    // that it hangs on, zero: none
}

// A Session is a node's lease with the shard, as the log knows it.
type Session struct {
	ID          Token
	Node        string
	Incarnation uint64
	TTL         time.Duration // as recorded at its creation
	Hot         bool          // the current claim's owner may renew it in memory
	Heard       Token         // minted when the log last heard of it: a checkpoint names it
	Silence     time.Duration // while cold: for how long at least it was silent when that was recorded
	Low         uint64        // results at or below it were acknowledged and are forgotten
}

// A Claimant is a holder of a lock, or a waiter if its Token is zero.
type Claimant struct {
	Session Token
	Seq     uint64
	Token   Token
	Value   []byte // must not be written to
}

// A LockState is a lock as it stands: who holds it, and who waits, first come first.
type LockState struct {
	Name    string
	Holders []Claimant
	Waiters []Claimant
}

// Applied is the index of the last entry whose effects reads can see. It never blocks. After a crash it may be
// smaller than before, since Apply does not sync: the log has the rest.
func (m *Machine) Applied() uint64 { return m.applied.Load() }

// Claim is the last accepted claim, the zero Claim if there was none. Like all reads of what is mirrored in memory it
// waits for a running Apply, whole, and then sees all of it.
func (m *Machine) Claim() Claim {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.claim
}

// Version is the cluster format version that entries have raised the shard to.
func (m *Machine) Version() uint32 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.counters.version
}

// Revision is the number of the shard's last config change.
func (m *Machine) Revision() Revision {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.counters.revision
}

// Get returns the record of key, which the caller owns. It reads the storage without waiting for Apply and sees
// whole Apply calls only. Errors: ErrNotFound, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Get(key []byte) (Record, error) {
	sp, err := m.home.enter()
	if err != nil {
		return Record{}, err
	}
	defer m.home.leave()
	return getRecord(m.db, sp, key)
}

// List returns up to limit records (zero or less: all) whose keys begin with prefix and are greater than after, in
// the order of keys, and the shard's revision at that instant, all from one snapshot. The caller bounds what a call
// may hold in memory. Errors: ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) List(prefix, after []byte, limit int) ([]Record, Revision, error) {
	sp, err := m.home.enter()
	if err != nil {
		return nil, 0, err
	}
	defer m.home.leave()
	snap := m.db.NewSnapshot()
	defer snap.Close()
	c, err := readCounters(snap, sp)
	if err != nil {
		return nil, 0, err
	}
	low := sp.record(nil, prefix)
	if bytes.Compare(after, prefix) >= 0 && len(after) > 0 {
		low = append(sp.record(nil, after), 0)
	}
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: successor(sp.record(nil, prefix))})
	if err != nil {
		return nil, 0, err
	}
	var recs []Record
	for ok := it.First(); ok && (limit <= 0 || len(recs) < limit); ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, 0, errors.Join(err, it.Close())
		}
		rec, err := decodeRecord(it.Key()[spaceLen+1:], v)
		if err != nil {
			return nil, 0, errors.Join(err, it.Close())
		}
		recs = append(recs, rec)
	}
	return recs, c.revision, it.Close()
}

// Session returns the living session with that id.
func (m *Machine) Session(id Token) (Session, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.st.sessions[id]
	if s == nil {
		return Session{}, false
	}
	return s.view(m.st.claim), true
}

// Sessions calls yield for each living session, oldest first, until it returns false. The sessions are of one
// instant; nothing is locked while yield runs.
func (m *Machine) Sessions(yield func(Session) bool) {
	for _, s := range m.sessionViews() {
		if !yield(s) {
			return
		}
	}
}

func (m *Machine) sessionViews() []Session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	views := make([]Session, 0, len(m.st.order))
	for _, s := range m.st.order {
		views = append(views, s.view(m.st.claim))
	}
	return views
}

// Result returns what is known of a session's operation: its remembered result, or, once that was acknowledged,
// whether it holds or waits for a lock now. So a caller may acknowledge a QUEUED at once and still ask for the
// grant. It must not be written to. False: the operation is unknown, forgotten, or its session has ended.
func (m *Machine) Result(id Token, seq uint64) (*fsmpb.Result, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.st.sessions[id]
	if s == nil {
		return nil, false
	}
	if i, ok := s.find(seq); ok {
		return s.results[i].result, true
	}
	l := s.ref(seq)
	if l == nil {
		return nil, false
	}
	if i := l.held(s, seq); i >= 0 {
		return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(l.holders[i].token)}, true
	}
	return &fsmpb.Result{Status: fsmpb.Result_QUEUED}, true
}

// Lock returns the state of the lock with that name; false: nobody holds it or waits for it.
func (m *Machine) Lock(name []byte) (LockState, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.st.locks[string(name)]
	if l == nil {
		return LockState{}, false
	}
	return l.view(), true
}

// Locks returns the states of all locks whose names begin with prefix, in the order of names, of one instant.
func (m *Machine) Locks(prefix []byte) []LockState {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var views []LockState
	for name, l := range m.st.locks {
		if bytes.HasPrefix([]byte(name), prefix) {
			views = append(views, l.view())
		}
	}
	slices.SortFunc(views, func(a, b LockState) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return views
}

// Holds returns the names that a session holds or waits for, with its part of each: one Claimant, among Holders or
// among Waiters. They are in the order of the operations that asked for them.
func (m *Machine) Holds(id Token) []LockState {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.st.sessions[id]
	if s == nil {
		return nil
	}
	var views []LockState
	for _, r := range s.refs {
		v := LockState{Name: r.lock.name}
		if i := r.lock.held(s, r.seq); i >= 0 {
			v.Holders = []Claimant{r.lock.holders[i].view(r.lock.holders[i].token)}
		} else if i := r.lock.waits(s, r.seq); i >= 0 {
			v.Waiters = []Claimant{r.lock.waiters[i].view(0)}
		}
		views = append(views, v)
	}
	return views
}

// Current reports whether the grant that a guard names is current: what an operation with that guard would find now.
func (m *Machine) Current(g *fsmpb.Guard) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.current(g)
}

// Hash is a hash of the whole state but the applied index: equal on all replicas that applied the same entries. It
// reads all data, from one snapshot, and blocks nobody. Errors: ErrClosed or the storage's.
func (m *Machine) Hash() (uint64, error) {
	sp, err := m.home.enter()
	if err != nil {
		return 0, err
	}
	defer m.home.leave()
	snap := m.db.NewSnapshot()
	defer snap.Close()
	h := xxhash.New()
	var b []byte
	err = eachRecord(snap, sp, func(suffix, value []byte) error {
		b = appendBytes(appendBytes(b[:0], suffix), value)
		_, err := h.Write(b)
		return err
	})
	return h.Sum64(), err
}

func (s *session) view(c Claim) Session {
	return Session{ID: s.id, Node: s.node, Incarnation: s.incarnation, TTL: s.ttl,
		Hot: s.life.IsHot(c.Token) && !c.Released, Heard: s.life.Heard, Silence: s.life.Silence, Low: s.low}
}

func (l *lock) view() LockState {
	v := LockState{Name: l.name}
	for _, h := range l.holders {
		v.Holders = append(v.Holders, h.view(h.token))
	}
	for _, w := range l.waiters {
		v.Waiters = append(v.Waiters, w.view(0))
	}
	return v
}

func (c claimant) view(t Token) Claimant {
	return Claimant{Session: c.session.id, Seq: c.seq, Token: t, Value: c.value}
}
