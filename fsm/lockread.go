package fsm

import (
	"strings"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A Claimant is a holder of a lock, or a waiter if its Token is zero.
type Claimant struct {
	Session         Token
	Node            string // of the session
	Seq             uint64
	Token           Token
	Ticket          Token // place in the order of arrival, in this lock and all others
	Mode            fsmpb.Lock_Mode
	Value           []byte        // must not be written to
	MaxHold         time.Duration // zero: no bound
	Grace           time.Duration // that the name stays closed if the holder dies, zero: none
	Started         bool          // the holder knows of its grant
	RevokeRequested bool
	Names           []string // all names of who asked for several at once, else nil
}

// A LockState is a lock as it stands: who holds it, and who waits, first come first.
type LockState struct {
	Kind    fsmpb.Lock_Kind
	Name    string
	Permits uint32 // total of a semaphore, zero: it is none
	Holders []Claimant
	Waiters []Claimant
	Graces  []Grace // while there is one, nobody is granted
}

// A Grace keeps a name closed after a holder that asked for it has died, until an EndGrace with its token.
type Grace struct {
	Kind   fsmpb.Lock_Kind
	Name   string
	Token  Token // of the dead grant
	Length time.Duration
}

// A Hold is a grant, with the first of its names.
type Hold struct {
	Kind fsmpb.Lock_Kind
	Name string
	Claimant
}

// Result returns what is known of a session's operation: its remembered result, or, once that was acknowledged,
// whether it holds or waits for a lock now. So a caller may acknowledge a QUEUED at once and still ask for the
// grant; a DONE that comes after that is in Job only. It must not be written to. False: the operation is unknown,
// forgotten, or its session has ended.
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
	c := s.ref(seq)
	switch {
	case c == nil:
		return nil, false
	case c.token == 0:
		return &fsmpb.Result{Status: fsmpb.Result_QUEUED}, true
	}
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(c.token)}
	if k := c.locks[0].key; k.kind == fsmpb.Lock_JOB {
		res.Attempt = m.st.jobs[k.name].attempt
	}
	return res, true
}

// Lock returns the state of the lock of that kind and name; false: nobody holds it or waits for it, and it is not closed.
func (m *Machine) Lock(kind fsmpb.Lock_Kind, name []byte) (LockState, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.st.locks[lockKey{kind, string(name)}]
	if l == nil {
		return LockState{}, false
	}
	return l.view(), true
}

// Holder returns the holder of a name with the smallest token. false: there is none.
func (m *Machine) Holder(kind fsmpb.Lock_Kind, name []byte) (Claimant, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.st.locks[lockKey{kind, string(name)}]
	if l == nil || len(l.holders) == 0 {
		return Claimant{}, false
	}
	return l.holders[0].view(), true
}

// Blocker returns a holder of one of the names that a session's operation waits for. false: it does not wait, or for no holder.
func (m *Machine) Blocker(id Token, seq uint64) (Claimant, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.st.sessions[id]
	if s == nil {
		return Claimant{}, false
	}
	c := s.ref(seq)
	if c == nil || c.token != 0 {
		return Claimant{}, false
	}
	for _, l := range c.locks {
		if len(l.holders) > 0 {
			return l.holders[0].view(), true
		}
	}
	return Claimant{}, false
}

// Locks returns the states of up to limit locks (zero or less: all) of a kind whose names begin with prefix and are greater
// than after, in the order of names, of one instant. It looks at no others.
func (m *Machine) Locks(kind fsmpb.Lock_Kind, prefix, after string, limit int) []LockState {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var views []LockState
	for l := range m.st.names.from(lockKey{kind, max(prefix, after)}) {
		if l.key.kind != kind || !strings.HasPrefix(l.key.name, prefix) && l.key.name > prefix || limit > 0 && len(views) == limit {
			break
		}
		if l.key.name > after && strings.HasPrefix(l.key.name, prefix) {
			views = append(views, l.view())
		}
	}
	return views
}

// Holds returns what a session holds or waits for, with its part of each lock: one Claimant, among Holders or among
// Waiters. They are in the order of the operations that asked for them. What has several names comes once, under the first.
func (m *Machine) Holds(id Token) []LockState {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.st.sessions[id]
	if s == nil {
		return nil
	}
	var views []LockState
	for _, c := range s.refs {
		l := c.locks[0]
		v := LockState{Kind: l.key.kind, Name: l.key.name, Permits: l.permits}
		if c.token != 0 {
			v.Holders = []Claimant{c.view()}
		} else {
			v.Waiters = []Claimant{c.view()}
		}
		views = append(views, v)
	}
	return views
}

// TimedHolds returns the grants that have a MaxHold, by token: an owner times those that are Started. It looks at no others.
func (m *Machine) TimedHolds() []Hold {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var holds []Hold
	for c := range m.st.timed.all {
		k := c.locks[0].key
		holds = append(holds, Hold{Kind: k.kind, Name: k.name, Claimant: c.view()})
	}
	return holds
}

// Graces returns what keeps names closed, for an owner to time. It looks at no other names.
func (m *Machine) Graces() []Grace {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var graces []Grace
	for x := range m.st.closed.all {
		graces = append(graces, x.view())
	}
	return graces
}

func (l *lock) view() LockState {
	v := LockState{Kind: l.key.kind, Name: l.key.name, Permits: l.permits}
	for _, c := range l.holders {
		v.Holders = append(v.Holders, c.view())
	}
	for _, c := range l.waiters {
		v.Waiters = append(v.Waiters, c.view())
	}
	for _, x := range l.closures {
		v.Graces = append(v.Graces, x.view())
	}
	return v
}

func (c *claimant) view() Claimant {
	v := Claimant{Session: c.session.id, Node: c.session.node, Seq: c.seq, Token: c.token, Ticket: c.ticket, Mode: c.mode,
		Value: c.value, MaxHold: c.maxHold, Grace: c.grace, Started: c.started, RevokeRequested: c.revoke}
	if len(c.locks) > 1 {
		for _, l := range c.locks {
			v.Names = append(v.Names, l.key.name)
		}
	}
	return v
}

func (x *closure) view() Grace {
	return Grace{Kind: x.lock.key.kind, Name: x.lock.key.name, Token: x.token, Length: x.grace}
}
