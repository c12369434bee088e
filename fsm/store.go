package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Destroy removes all data of a shard's replica, durably. The machine must be closed. A replica that never was here
// is no error.
func Destroy(db *pebble.DB, shard, replica uint64) error {
	b := db.NewBatch()
	defer b.Close()
	all := newSpace(shard, replica, 0)
	prefix := all[:spaceLen-8]
	if err := errors.Join(
		b.DeleteRange(prefix, successor(prefix), nil),
		b.Delete(pointerKey(shard, replica), nil),
		b.Commit(pebble.Sync),
	); err != nil {
		return fmt.Errorf("destroy shard %d, replica %d: %w", shard, replica, err)
	}
	return nil
}

// currentSpace follows the pointer to the current generation. Without a pointer it is the first one.
func currentSpace(r pebble.Reader, shard, replica uint64) (space, error) {
	v, found, err := get(r, pointerKey(shard, replica))
	if err != nil {
		return space{}, err
	}
	if !found {
		return newSpace(shard, replica, 1), nil
	}
	if len(v) != 8 {
		return space{}, fmt.Errorf("%w: pointer of %d bytes", ErrCorrupt, len(v))
	}
	return newSpace(shard, replica, binary.BigEndian.Uint64(v)), nil
}

// initialise writes the first counters of a replica that has none. They need no sync: what is applied later is
// behind them in the storage's log.
func initialise(db *pebble.DB, sp space, first counters) error {
	key := sp.start(nil, kindCounters)
	_, found, err := get(db, key)
	if err != nil || found {
		return err
	}
	if err := emptyBefore(db, sp); err != nil {
		return err
	}
	return db.Set(key, appendCounters(nil, first), pebble.NoSync)
}

// emptyBefore makes sure that a space without counters has nothing else either.
func emptyBefore(r pebble.Reader, sp space) error {
	return eachRecord(r, sp, func(suffix, _ []byte) error {
		return fmt.Errorf("%w: counters are missing", ErrCorrupt)
	})
}

// sweep removes the other generations of the space's replica: leftovers of interrupted restores.
func sweep(db *pebble.DB, sp space) error {
	prefix := sp[:spaceLen-8]
	first := sp
	clear(first[spaceLen-8:])
	if err := clearRange(db, first[:], sp[:]); err != nil {
		return err
	}
	return clearRange(db, sp.end(), successor(prefix))
}

// clearRange deletes a range if there is anything in it: a needless range deletion costs later reads.
func clearRange(db *pebble.DB, low, high []byte) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return err
	}
	found := it.First()
	if err := it.Close(); err != nil || !found {
		return err
	}
	return db.DeleteRange(low, high, pebble.NoSync)
}

// get returns a copy of a value.
func get(r pebble.Reader, key []byte) (value []byte, found bool, err error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return append([]byte(nil), v...), true, closer.Close()
}

func getRecord(r pebble.Reader, sp space, key []byte) (Record, error) {
	if len(key) == 0 || len(key) > MaxKey {
		return Record{}, ErrNotFound
	}
	v, closer, err := r.Get(sp.record(make([]byte, 0, spaceLen+1+len(key)), key))
	if errors.Is(err, pebble.ErrNotFound) {
		return Record{}, ErrNotFound
	}
	if err != nil {
		return Record{}, err
	}
	rec, err := decodeRecord(key, v)
	return rec, errors.Join(err, closer.Close())
}

func readCounters(r pebble.Reader, sp space) (counters, error) {
	v, found, err := get(r, sp.start(nil, kindCounters))
	if err != nil {
		return counters{}, err
	}
	if !found {
		return counters{}, fmt.Errorf("%w: counters are missing", ErrCorrupt)
	}
	return decodeCounters(v)
}

func readApplied(r pebble.Reader, sp space) (uint64, error) {
	v, found, err := get(r, sp.start(nil, kindApplied))
	if err != nil || !found {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: applied index of %d bytes", ErrCorrupt, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// eachRecord calls fn for every record of a space but the applied index, in the order of keys. The slices are valid
// only during the call.
func eachRecord(r pebble.Reader, sp space, fn func(suffix, value []byte) error) error {
	return eachBetween(r, sp.start(nil, kindApplied+1), sp.end(), fn)
}

func eachBetween(r pebble.Reader, low, high []byte, fn func(suffix, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = fn(it.Key()[spaceLen:], v)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return it.Close()
}
