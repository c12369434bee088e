package fsm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Options of a Machine. They must be the same on all replicas of a shard, but for MaxVersion while binaries are mixed.
type Options struct {
	// MaxVersion is the newest cluster format version that this machine goes along with. Zero means Version. Smaller
	// ones act like an older binary; greater ones follow a Raise beyond what is known, and are for tests.
	MaxVersion uint32
	// Era is the era of the tokens of a shard that starts empty, 0..MaxEra. State that exists keeps its own.
	Era uint64

	// since is the version that brought an operation, zero for one that this machine does not know. Tests replace it to
	// have a second version.
	since func(*fsmpb.Op) uint32
}

// A Machine is one replica of a shard's state. Apply, Restore, Prepare, Sync and Close are called by one goroutine
// at a time, as Raft's apply loop does; reads may be called by any, at any time.
type Machine struct {
	db             *pebble.DB
	shard, replica uint64
	options        Options
	applied        atomic.Uint64
	home           home

	// mu guards st and stopped. Apply holds it while it changes st and until the storage has the change too (without
	// syncing), so whoever reads memory after a read of the storage, or the other way round, never goes back in time.
	mu      sync.RWMutex
	st      *state
	stopped error // ErrHalted or ErrFailed, with the reason
}

// Open loads the state of a shard's replica from db, which must stay open until after Close, or starts an empty one.
// It also removes what an interrupted Restore left behind. Errors: ErrVersion if the state was raised beyond
// MaxVersion, in which case nothing is changed; ErrCorrupt; or the storage's.
func Open(db *pebble.DB, shard, replica uint64, o Options) (*Machine, error) {
	if o.MaxVersion == 0 {
		o.MaxVersion = Version
	}
	if o.since == nil {
		o.since = since
	}
	if o.Era > MaxEra {
		return nil, fmt.Errorf("open state machine: era %d is beyond %d: %w", o.Era, uint64(MaxEra), ErrInvalid)
	}
	m := &Machine{db: db, shard: shard, replica: replica, options: o}
	if err := m.open(); err != nil {
		return nil, fmt.Errorf("open state machine of shard %d, replica %d: %w", shard, replica, err)
	}
	return m, nil
}

func (m *Machine) open() error {
	sp, err := currentSpace(m.db, m.shard, m.replica)
	if err != nil {
		return err
	}
	if err := initialise(m.db, sp, counters{version: 1, tokens: FirstToken(m.options.Era), oldest: 1}); err != nil {
		return err
	}
	st, applied, err := load(m.db, sp, m.options.MaxVersion)
	if err != nil {
		return err
	}
	if err := sweep(m.db, sp); err != nil {
		return err
	}
	m.st = st
	m.applied.Store(applied)
	m.home.move(sp)
	return nil
}

// Apply applies entries in order, as one write to the storage, which it does not sync. An entry that is not well
// formed or not allowed changes nothing and says so in its Applied. Entries at or below the applied index are left
// out. An entry that the machine does not understand ends the call with ErrVersion: it is the last Applied, nothing
// of it was done, all before it was, and from then on Apply returns ErrHalted. Other errors are ErrHalted, ErrFailed
// and ErrClosed, with nothing applied.
func (m *Machine) Apply(es []Entry) ([]Applied, error) {
	sp, err := m.home.enter()
	if err != nil {
		return nil, err
	}
	defer m.home.leave()
	cmds := make([]command, 0, len(es))
	for len(es) > 0 && es[0].Index <= m.Applied() {
		es = es[1:]
	}
	for _, e := range es {
		cmds = append(cmds, parse(e.Data))
	}
	recs, jobs := m.prefetch(sp, cmds), m.prefetchJobs(sp, cmds)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped != nil {
		return nil, m.stopped
	}
	t := m.begin(sp, recs, jobs)
	defer func() { t.batch.Close() }()
	done, err := t.run(es, cmds)
	if err != nil && !errors.Is(err, ErrVersion) {
		return nil, m.fail(err)
	}
	if cerr := t.commit(); cerr != nil {
		return nil, m.fail(cerr)
	}
	m.applied.Store(t.index)
	if err != nil {
		m.stopped = fmt.Errorf("%w: %w", ErrHalted, err)
	}
	return done, err
}

// fail ends the machine's life after the storage failed: memory may be ahead of it, so memory is dropped, and with it
// the claim: nobody takes a failed machine for an owner's.
func (m *Machine) fail(err error) error {
	m.stopped = fmt.Errorf("%w: %w", ErrFailed, err)
	m.st = newState(m.st.counters.version, m.st.counters.tokens)
	return m.stopped
}

// Err is nil while the machine can apply; afterwards it says why not: ErrHalted, ErrFailed or ErrClosed, with the
// reason.
func (m *Machine) Err() error {
	if _, err := m.home.enter(); err != nil {
		return err
	}
	m.home.leave()
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stopped
}

// Sync makes everything applied so far durable. It blocks for one sync of the storage's log.
func (m *Machine) Sync() error {
	if _, err := m.home.enter(); err != nil {
		return err
	}
	defer m.home.leave()
	if err := m.db.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync state machine: %w", err)
	}
	return nil
}

// Close ends the use of the database, which stays open, and waits for reads and calls that run. It syncs nothing.
// Snapshots that were prepared stay usable, and must be closed before the database is. It is idempotent.
func (m *Machine) Close() error {
	m.home.close()
	return nil
}

// home is where a machine's data is in the database. Whoever uses the database is inside; moving to another
// generation and closing wait until everybody has left.
type home struct {
	mu     sync.RWMutex // held for reading while the database is used; guards sp and closed
	sp     space
	closed bool
}

// enter returns the current space. It stays current, and the database open, until leave.
func (h *home) enter() (space, error) {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return space{}, ErrClosed
	}
	return h.sp, nil
}

func (h *home) leave() { h.mu.RUnlock() }

func (h *home) move(sp space) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sp = sp
}

func (h *home) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
