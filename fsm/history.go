package fsm

import "errors"

var errUnfinished = errors.New("not built yet")

// A Change is one change of a config record, as the history keeps it.
type Change struct {
	Revision Revision // shared by all changes of one operation
	At       int64    // wall clock in Unix nanoseconds, as the owner saw it, 0: unknown
	Deleted  bool
	Record   Record  // after the change; of a deletion only Key and Mod
	Prev     *Record // before it, nil: there was none
}

// A ChangesQuery asks for the changes of the records whose keys begin with Prefix, from the revision From on.
type ChangesQuery struct {
	Prefix []byte
	From   Revision
	Limit  int // changes of a page, zero or less: all
	Bytes  int // of keys and values, before and after, at which a page ends; zero or less: no bound
}

// A ChangePage answers a ChangesQuery. A page has whole revisions only, so it may exceed Limit and Bytes by one of them. It may
// be empty and still not the last, when a long stretch of other keys lies in between: it is the last if Next is beyond
// Revision.
type ChangePage struct {
	Changes  []Change // the caller's, by revision, then in the order in which they were made
	Next     Revision // where to go on
	Revision Revision // the shard's, when this was read
}

// Changes returns a page of the history, from one instant. It looks at up to some thousand changes a call, reads the storage
// without waiting for Apply and sees whole calls of Apply. Errors: *CompactedError if From is forgotten (zero always is),
// ErrFuture if From is beyond the next revision, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Changes(q ChangesQuery) (ChangePage, error) { return ChangePage{}, errUnfinished }

// History returns up to limit changes of key (zero or less: all), newest first, that have a revision less than before (zero:
// all), as far as they are kept, from one instant. It reads the storage without waiting for Apply. Errors: ErrClosed,
// ErrCorrupt, or the storage's.
func (m *Machine) History(key []byte, before Revision, limit int) ([]Change, error) {
	return nil, errUnfinished
}

// Oldest is the first revision whose history is kept. The state is known as of the revision before it and of later ones.
func (m *Machine) Oldest() Revision {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.counters.revision + 1
}

// ChangeTime returns the wall clock, in Unix nanoseconds, as an owner recorded it with the first change that is kept and whose
// revision is r or later. False: there is none, or it cannot be read. It reads the storage without waiting for Apply.
func (m *Machine) ChangeTime(r Revision) (at int64, ok bool) { return 0, false }
