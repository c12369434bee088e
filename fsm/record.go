package fsm

import "time"

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

// Expiring calls yield for each record that has a TTL, in the order of keys, of one instant, until it returns false. What it
// yields is the callee's to keep. It reads the storage and waits for nobody. Errors: ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Expiring(yield func(Timed) bool) error { return errUnfinished }
