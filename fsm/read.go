package fsm

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

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

// SessionsOf returns the ids of a node's living sessions, oldest first. It looks at no others.
func (m *Machine) SessionsOf(node string) []Token {
	m.mu.RLock()
	defer m.mu.RUnlock()
	x := m.st.members[node]
	if x == nil {
		return nil
	}
	ids := make([]Token, 0, x.sessions.len())
	for s := range x.sessions.all {
		ids = append(ids, s.id)
	}
	return ids
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
