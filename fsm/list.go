package fsm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A ListQuery asks for the records whose keys are at or after From and before To, in the order of keys.
type ListQuery struct {
	From     []byte
	To       []byte   // nil or empty: to the end
	At       Revision // as they were at that revision, zero: now
	Limit    int      // records of a page, zero or less: all
	Bytes    int      // of keys and values, after which a page ends; at least one record is in it. Zero or less: no bound
	KeysOnly bool     // leaves the values out
	Reverse  bool     // from the last to the first
}

// A RecordPage answers a ListQuery. A caller goes on behind the last record, at Revision: so all pages are of one instant.
type RecordPage struct {
	Revision Revision // as of which the records are
	Records  []Record // the caller's
	More     bool     // there are records after these
}

// List returns a page of records, all from one instant. It reads the storage without waiting for Apply and sees whole calls
// of Apply. A page of an older revision is worked out from the history, at the cost of reading all later changes; its records'
// Age is zero if they were changed since. The caller bounds what a call may hold in memory. Errors: *CompactedError, ErrFuture,
// ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) List(q ListQuery) (page RecordPage, err error) {
	err = m.look(func(v view) error {
		if q.At == 0 {
			q.At = v.now.revision
		}
		if err := v.reaches(q.At); err != nil {
			return err
		}
		page, err = v.list(q)
		return err
	})
	return page, err
}

// GetAt returns the record of key as it was at a revision, zero: now. The caller owns it. It reads the storage without waiting
// for Apply. Errors: ErrNotFound: there was none then; *CompactedError, ErrFuture, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) GetAt(key []byte, at Revision) (rec Record, err error) {
	err = m.look(func(v view) error {
		if at == 0 {
			at = v.now.revision
		}
		if err := v.reaches(at); err != nil {
			return err
		}
		rec, err = getRecord(v.snap, v.sp, key)
		if at == v.now.revision || err == nil && rec.Mod <= at || err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		found := err == nil
		if err := v.trace(key, at+1, func(c Change) bool {
			if found = c.Prev != nil; found {
				rec = *c.Prev
			}
			return true
		}); err != nil || found {
			return err
		}
		return ErrNotFound
	})
	if err != nil {
		return Record{}, err
	}
	return rec, nil
}

// reaches reports whether the state is known as of a revision.
func (v view) reaches(at Revision) error {
	switch {
	case at > v.now.revision:
		return ErrFuture
	case at < v.now.oldest-1:
		return &CompactedError{v.now.oldest}
	}
	return nil
}

// list is a page of the records as of q.At.
func (v view) list(q ListQuery) (RecordPage, error) {
	page := RecordPage{Revision: q.At}
	l, err := v.listing(q)
	if err != nil {
		return RecordPage{}, err
	}
	for size := 0; ; {
		rec, err := l.next()
		if err != nil {
			return RecordPage{}, errors.Join(err, l.it.Close())
		}
		if rec == nil {
			break
		}
		if n := len(page.Records); n > 0 && (q.Limit > 0 && n >= q.Limit || q.Bytes > 0 && size >= q.Bytes) {
			page.More = true
			break
		}
		size += len(rec.Key) + len(rec.Value)
		page.Records = append(page.Records, *rec)
	}
	return page, l.it.Close()
}

// listing walks over the records as they were at a revision, in the one direction or the other.
type listing struct {
	view
	q      ListQuery
	it     *pebble.Iterator    // over the present records
	valid  bool                // it stands at one
	step   func() bool         // moves it
	undo   map[string]position // the first change of each key after that revision
	former []string            // keys in undo that had a record then and were not walked over yet, in order
}

// position is where a change stands in the history.
type position struct {
	rev Revision
	n   uint32
}

func (v view) listing(q ListQuery) (*listing, error) {
	l := &listing{view: v, q: q}
	if err := l.lookBack(); err != nil {
		return nil, err
	}
	o := pebble.IterOptions{LowerBound: v.sp.record(nil, q.From), UpperBound: v.sp.start(nil, kindRecord+1)}
	if len(q.To) > 0 {
		o.UpperBound = v.sp.record(nil, q.To)
	}
	it, err := v.snap.NewIter(&o)
	if err != nil {
		return nil, err
	}
	l.it = it
	if q.Reverse {
		l.step, l.valid = it.Prev, it.Last()
	} else {
		l.step, l.valid = it.Next, it.First()
	}
	return l, nil
}

// lookBack reads what changed since. It keeps no values: a page needs few of them.
func (l *listing) lookBack() error {
	if l.q.At == l.now.revision {
		return nil
	}
	l.undo = map[string]position{}
	err := l.eachChange(l.q.At+1, 0, func(rev Revision, n uint32, stored []byte) (bool, error) {
		key, flags, err := peekChange(stored)
		if err != nil || bytes.Compare(key, l.q.From) < 0 || len(l.q.To) > 0 && bytes.Compare(key, l.q.To) >= 0 {
			return true, err
		}
		if _, later := l.undo[string(key)]; later {
			return true, nil
		}
		l.undo[string(key)] = position{rev, n}
		if flags&changedFrom != 0 {
			l.former = append(l.former, string(key))
		}
		return true, nil
	})
	slices.SortFunc(l.former, l.compare)
	return err
}

// compare compares keys in the direction of the walk.
func (l *listing) compare(a, b string) int {
	if l.q.Reverse {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// next is the next record, nil if there is none.
func (l *listing) next() (*Record, error) {
	for ; l.valid; l.valid = l.step() {
		if _, changed := l.undo[string(l.it.Key()[spaceLen+1:])]; !changed {
			break
		}
	}
	if !l.valid {
		if err := l.it.Error(); err != nil {
			return nil, err
		}
	}
	if len(l.former) > 0 && (!l.valid || l.compare(l.former[0], string(l.it.Key()[spaceLen+1:])) < 0) {
		key := l.former[0]
		l.former = l.former[1:]
		return l.restored(key)
	}
	if !l.valid {
		return nil, nil
	}
	v, err := l.it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	rec, err := decodeRecord(l.it.Key()[spaceLen+1:], v)
	if l.q.KeysOnly {
		rec.Value = nil
	}
	l.valid = l.step()
	return &rec, err
}

// restored is the record that a later change has replaced or removed.
func (l *listing) restored(key string) (*Record, error) {
	at := l.undo[key]
	stored, found, err := get(l.snap, l.sp.change(nil, at.rev, at.n))
	if err != nil || !found {
		return nil, errors.Join(err, fmt.Errorf("%w: change %d.%d is missing", ErrCorrupt, at.rev, at.n))
	}
	c, err := decodeChange(at.rev, stored)
	if err != nil {
		return nil, err
	}
	if c.Prev == nil {
		return nil, fmt.Errorf("%w: change %d.%d changed", ErrCorrupt, at.rev, at.n)
	}
	if l.q.KeysOnly {
		c.Prev.Value = nil
	}
	return c.Prev, nil
}
