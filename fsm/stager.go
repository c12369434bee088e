package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// stager writes the records of a snapshot into a space, in bounded batches, and makes the indexes anew.
type stager struct {
	db    *pebble.DB
	sp    space
	batch *pebble.Batch
	key   []byte
	val   []byte

	// What the snapshot has said so far. The counters come before the config records, and the history after them.
	top    counters
	rev    Revision // of the last change of the history; at first that before the first
	number uint32   // of the last change within its revision
}

func (w *stager) add(suffix, value []byte) error {
	if err := w.check(suffix, value); err != nil {
		return err
	}
	w.key = append(append(w.key[:0], w.sp[:]...), suffix...)
	if err := w.batch.Set(w.key, value, nil); err != nil {
		return err
	}
	if w.batch.Len() < restoreBatch {
		return nil
	}
	return w.flush()
}

// check looks at config records and their history, which are not loaded: everything else is checked when it is, also whether the
// session lives with which a record goes.
func (w *stager) check(suffix, value []byte) (err error) {
	switch suffix[0] {
	case kindCounters:
		w.top, err = decodeCounters(value)
		w.rev = w.top.oldest - 1
	case kindRecord:
		return w.record(suffix[1:], value)
	case kindHistory:
		return w.change(suffix[1:], value)
	}
	return err
}

func (w *stager) record(key, value []byte) error {
	rec, err := decodeRecord(key, value)
	switch {
	case err != nil:
		return err
	case rec.Create == 0 || rec.Create > rec.Mod || rec.Mod > w.top.revision:
		return fmt.Errorf("%w: config record of revision %d, the shard's is %d", ErrCorrupt, rec.Mod, w.top.revision)
	case rec.Session != 0:
		w.key = w.sp.ephemeral(w.key[:0], rec.Session, key)
		return w.batch.Set(w.key, nil, nil)
	case rec.TTL != 0:
		w.key, w.val = w.sp.timed(w.key[:0], key), appendTimed(w.val[:0], &rec)
		return w.batch.Set(w.key, w.val, nil)
	}
	return nil
}

// change checks that no revision is missing in the history, and no change within one.
func (w *stager) change(rest, value []byte) error {
	rev, n, err := parseChange(rest)
	if err != nil {
		return err
	}
	if first := rev == w.rev+1 && n == 0; !first && (rev != w.rev || n != w.number+1 || rev < w.top.oldest) {
		return fmt.Errorf("%w: change %d.%d after %d.%d", ErrCorrupt, rev, n, w.rev, w.number)
	}
	w.rev, w.number = rev, n
	_, err = decodeChange(rev, value)
	return err
}

func (w *stager) flush() error {
	if err := w.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	w.batch.Reset()
	return nil
}

// finish writes what is left, and the applied index after everything else.
func (w *stager) finish(applied uint64) error {
	if w.rev != w.top.revision {
		return fmt.Errorf("%w: history ends at revision %d, the shard's is %d", ErrCorrupt, w.rev, w.top.revision)
	}
	w.key = w.sp.start(w.key[:0], kindApplied)
	if err := w.batch.Set(w.key, binary.BigEndian.AppendUint64(nil, applied), nil); err != nil {
		return err
	}
	return w.flush()
}
