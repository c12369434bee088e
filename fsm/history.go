package fsm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Bounds of what one call of Changes looks at, so that a stretch of other keys does not hold it up.
const (
	lookedAt      = 4096    // changes
	lookedAtBytes = 8 << 20 // of their stored form

	splitAt      = 4 * lookedAt // changes of one revision, and bytes that are found of them, after which even that is split
	splitAtBytes = 4 << 20
)

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
	Skip   uint32 // so many changes of From are known already: what ChangePage.Skip said
	Limit  int    // changes of a page, zero or less: all
	Bytes  int    // of keys and values, before and after, at which a page ends; zero or less: no bound
}

// A ChangePage answers a ChangesQuery. A page has whole revisions, so it may exceed Limit and Bytes by one of them; only one of more than
// 4 MiB is split, and then Skip says how much of it the page, and those before it, have had. It may
// be empty and still not the last, when a long stretch of other keys lies in between: it is the last if Next is beyond
// Revision.
type ChangePage struct {
	Changes  []Change // the caller's, by revision, then in the order in which they were made
	Next     Revision // where to go on
	Skip     uint32   // and after how many changes of it
	Revision Revision // the shard's, when this was read
}

// Changes returns a page of the history, from one instant. It looks at up to some thousand changes a call, reads the storage
// without waiting for Apply and sees whole calls of Apply. Errors: *CompactedError if From is forgotten (zero always is),
// ErrFuture if From is beyond the next revision, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Changes(q ChangesQuery) (page ChangePage, err error) {
	err = m.look(func(v view) error {
		if q.From > v.now.revision+1 {
			return ErrFuture
		}
		if q.From < v.now.oldest {
			return &CompactedError{v.now.oldest}
		}
		page, err = v.changes(q)
		return err
	})
	return page, err
}

// History returns up to limit changes of key (zero or less: all), newest first, that have a revision less than before (zero:
// all), as far as they are kept, from one instant. It reads the storage without waiting for Apply; where the key was absent it
// has to look at all changes of that time. Errors: ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) History(key []byte, before Revision, limit int) (changes []Change, err error) {
	err = m.look(func(v view) error {
		return v.trace(key, v.now.oldest, func(c Change) bool {
			if before == 0 || c.Revision < before {
				changes = append(changes, c)
			}
			return limit <= 0 || len(changes) < limit
		})
	})
	return changes, err
}

// Oldest is the first revision whose history is kept, the next revision if none is. The state is known as of the revision
// before it and of later ones.
func (m *Machine) Oldest() Revision {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.counters.oldest
}

// view is the config records and their history at one instant.
type view struct {
	snap *pebble.Snapshot
	sp   space
	now  counters
}

// look calls fn with a view of now.
func (m *Machine) look(fn func(view) error) error {
	sp, err := m.home.enter()
	if err != nil {
		return err
	}
	defer m.home.leave()
	snap := m.db.NewSnapshot()
	defer snap.Close()
	c, err := readCounters(snap, sp)
	if err != nil {
		return err
	}
	return fn(view{snap, sp, c})
}

// changes is a page of changes. It ends where a revision does.
func (v view) changes(q ChangesQuery) (ChangePage, error) {
	page := ChangePage{Next: v.now.revision + 1, Revision: v.now.revision}
	looked, lookedBytes, size := 0, 0, 0
	last := q.From
	err := v.eachChange(q.From, q.Skip, func(rev Revision, n uint32, stored []byte) (bool, error) {
		full := q.Limit > 0 && len(page.Changes) >= q.Limit || q.Bytes > 0 && size >= q.Bytes
		switch {
		case rev != last && (full || looked >= lookedAt || lookedBytes >= lookedAtBytes):
			page.Next = rev
			return false, nil
		case rev == last && (size >= splitAtBytes || looked >= splitAt || lookedBytes >= 2*lookedAtBytes):
			page.Next, page.Skip = rev, n
			return false, nil
		}
		last, looked, lookedBytes = rev, looked+1, lookedBytes+len(stored)
		key, _, err := peekChange(stored)
		if err != nil || !bytes.HasPrefix(key, q.Prefix) {
			return true, err
		}
		c, err := decodeChange(rev, stored)
		page.Changes = append(page.Changes, c)
		size += len(stored)
		return true, err
	})
	return page, err
}

// eachChange calls fn for the stored changes from a revision on, but its first ones, until it returns false.
func (v view) eachChange(from Revision, skip uint32, fn func(rev Revision, n uint32, stored []byte) (bool, error)) error {
	it, err := v.iterate(from, skip)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		rev, n, stored, err := changeAt(it)
		more := false
		if err == nil {
			more, err = fn(rev, n, stored)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !more {
			break
		}
	}
	return it.Close()
}

// iterate is an iterator over the stored changes from a revision on, but its first ones.
func (v view) iterate(from Revision, skip uint32) (*pebble.Iterator, error) {
	return v.snap.NewIter(&pebble.IterOptions{LowerBound: v.sp.change(nil, from, skip), UpperBound: v.sp.start(nil, kindHistory+1)})
}

// changeAt is the stored change at which an iterator stands.
func changeAt(it *pebble.Iterator) (Revision, uint32, []byte, error) {
	stored, err := it.ValueAndErr()
	if err != nil {
		return 0, 0, nil, err
	}
	rev, n, err := parseChange(it.Key()[spaceLen+1:])
	return rev, n, stored, err
}

// trace calls yield for the changes of a key, newest first, down to the revision floor, until it returns false. A change says
// where the one before it stands, if it left a record; else all changes have to be looked at.
func (v view) trace(key []byte, floor Revision, yield func(Change) bool) error {
	var at Revision // where the next change stands, zero: unknown
	switch rec, err := getRecord(v.snap, v.sp, key); {
	case err == nil:
		at = rec.Mod
	case !errors.Is(err, ErrNotFound):
		return err
	}
	it, err := v.iterate(floor, 0)
	if err != nil {
		return err
	}
	for below := v.now.revision + 1; at == 0 || at >= floor; {
		c, err := v.before(it, key, below, at)
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if c == nil || !yield(*c) {
			break
		}
		below, at = c.Revision, 0
		if c.Prev != nil {
			at = c.Prev.Mod
		}
	}
	return it.Close()
}

// before is the last change of a key below a revision, nil if none is kept. It must be at the given one, if that is not zero.
func (v view) before(it *pebble.Iterator, key []byte, below, at Revision) (*Change, error) {
	if at != 0 {
		below = at + 1
	}
	for ok := it.SeekLT(v.sp.change(nil, below, 0)); ok; ok = it.Prev() {
		rev, _, stored, err := changeAt(it)
		if err != nil {
			return nil, err
		}
		if rev < at {
			break
		}
		if k, _, err := peekChange(stored); err != nil || !bytes.Equal(k, key) {
			if err != nil {
				return nil, err
			}
			continue
		}
		c, err := decodeChange(rev, stored)
		return &c, err
	}
	if err := it.Error(); err != nil || at == 0 {
		return nil, err
	}
	return nil, fmt.Errorf("%w: revision %d did not change %q", ErrCorrupt, at, key)
}
