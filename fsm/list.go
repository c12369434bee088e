package fsm

import (
	"errors"

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
func (m *Machine) List(q ListQuery) (RecordPage, error) {
	sp, err := m.home.enter()
	if err != nil {
		return RecordPage{}, err
	}
	defer m.home.leave()
	snap := m.db.NewSnapshot()
	defer snap.Close()
	c, err := readCounters(snap, sp)
	if err != nil {
		return RecordPage{}, err
	}
	if q.At > c.revision {
		return RecordPage{}, ErrFuture
	}
	if q.At != 0 && q.At < c.revision {
		return RecordPage{}, errUnfinished
	}
	page := RecordPage{Revision: c.revision}
	o := pebble.IterOptions{LowerBound: sp.record(nil, q.From), UpperBound: sp.end()}
	if len(q.To) > 0 {
		o.UpperBound = sp.record(nil, q.To)
	}
	it, err := snap.NewIter(&o)
	if err != nil {
		return RecordPage{}, err
	}
	first, next := it.First, it.Next
	if q.Reverse {
		first, next = it.Last, it.Prev
	}
	size := 0
	for ok := first(); ok; ok = next() {
		if n := len(page.Records); n > 0 && (q.Limit > 0 && n >= q.Limit || q.Bytes > 0 && size >= q.Bytes) {
			page.More = true
			break
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return RecordPage{}, errors.Join(err, it.Close())
		}
		rec, err := decodeRecord(it.Key()[spaceLen+1:], v)
		if err != nil {
			return RecordPage{}, errors.Join(err, it.Close())
		}
		if q.KeysOnly {
			rec.Value = nil
		}
		size += len(rec.Key) + len(rec.Value)
		page.Records = append(page.Records, rec)
	}
	return page, it.Close()
}

// GetAt returns the record of key as it was at a revision, zero: now. The caller owns it. It reads the storage without waiting
// for Apply. Errors: ErrNotFound: there was none then; *CompactedError, ErrFuture, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) GetAt(key []byte, at Revision) (Record, error) {
	return Record{}, errUnfinished
}
