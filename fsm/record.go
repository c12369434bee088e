package fsm

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A Record is one config record.
type Record struct {
	Key     []byte
	Value   []byte
	Create  Revision      // of the change that made the key
	Mod     Revision      // of the last change
	Version int64         // changes since it was made, from 1
	Session Token         // that it goes with, zero: none
	TTL     time.Duration // after its last change, at which an owner expires it, zero: never
	Age     time.Duration // of one with a TTL: since its last change, at least, as an owner has recorded it
}

// A Timed is a record with a TTL, for an owner to time.
type Timed struct {
	Key []byte
	Mod Revision      // of its last change, which ExpireRecords and AgeRecords name
	TTL time.Duration // since that change
	Age time.Duration // that have passed already, at least, as an owner has recorded it
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

// Expiring calls yield for the records that have a TTL, in the order of keys, until it returns false. It reads the storage in
// pieces, without waiting for Apply: what changes meanwhile may be seen or not, what stays is. Nothing is locked while yield
// runs. An error comes last, with no record: ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Expiring(yield func(Timed, error) bool) {
	for after := []byte(nil); ; {
		xs, err := m.expiringAfter(after)
		for _, x := range xs {
			if !yield(x, nil) {
				return
			}
			after = x.Key
		}
		if err != nil {
			yield(Timed{}, err)
			return
		}
		if len(xs) < expiringPiece {
			return
		}
	}
}

// expiringPiece is how many records Expiring reads at once.
const expiringPiece = 1000

func (m *Machine) expiringAfter(after []byte) (xs []Timed, err error) {
	sp, err := m.home.enter()
	if err != nil {
		return nil, err
	}
	defer m.home.leave()
	low := sp.timed(nil, after)
	if len(after) > 0 {
		low = append(low, 0)
	}
	it, err := m.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: sp.start(nil, kindTimed+1)})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && len(xs) < expiringPiece; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return xs, errors.Join(err, it.Close())
		}
		x, err := decodeTimed(it.Key()[spaceLen+1:], v)
		if err != nil {
			return xs, errors.Join(err, it.Close())
		}
		xs = append(xs, x)
	}
	return xs, it.Close()
}
