package fsm

import (
	"bytes"
	"errors"
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
	views := make([]Session, 0, m.st.order.len())
	for s := range m.st.order.all {
		views = append(views, s.view(m.st.claim))
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
