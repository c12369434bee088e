package fsm

import (
	"errors"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// put writes a record.
func (t *txn) put(key, value []byte) *fsmpb.Result {
	old, err := t.record(key)
	if err != nil {
		return t.broken(err)
	}
	return t.write(key, value, old)
}

// deleteKey removes a record. That there was none is no change, and no failure.
func (t *txn) deleteKey(key []byte) *fsmpb.Result {
	old, err := t.record(key)
	if err != nil {
		return t.broken(err)
	}
	if old == nil {
		return status(fsmpb.Result_OK)
	}
	t.recs[string(key)] = nil
	t.unset(t.sp.record(t.key[:0], key))
	return t.changed(key, true)
}

// compareAndSwap writes a record if it is the expected one.
func (t *txn) compareAndSwap(c *fsmpb.CompareAndSwap) *fsmpb.Result {
	old, err := t.record(c.Key)
	switch {
	case err != nil:
		return t.broken(err)
	case old == nil && c.Expect != 0:
		return status(fsmpb.Result_CONFLICT)
	case old != nil && uint64(old.Mod) != c.Expect:
		return &fsmpb.Result{Status: fsmpb.Result_CONFLICT, Record: toMessage(old)}
	}
	return t.write(c.Key, c.Value, old)
}

// write replaces old, nil if the key is absent.
func (t *txn) write(key, value []byte, old *Record) *fsmpb.Result {
	res := t.changed(key, false)
	rec := &Record{Key: key, Value: value, Create: Revision(res.Revision), Mod: Revision(res.Revision), Version: 1}
	if old != nil {
		rec.Create, rec.Version = old.Create, old.Version+1
	}
	t.recs[string(key)] = rec
	t.val = appendRecord(t.val[:0], rec)
	t.set(t.sp.record(t.key[:0], key))
	return res
}

// changed counts a change and tells of it.
func (t *txn) changed(key []byte, deleted bool) *fsmpb.Result {
	t.st.counters.revision++
	rev := t.st.counters.revision
	t.tell(Event{Kind: Changed, Name: key, Revision: rev, Deleted: deleted})
	return &fsmpb.Result{Status: fsmpb.Result_OK, Revision: uint64(rev)}
}

// record reads a record as the running Apply has left it, nil if the key is absent.
func (t *txn) record(key []byte) (*Record, error) {
	if rec, ok := t.recs[string(key)]; ok {
		return rec, nil
	}
	rec, err := getRecord(t.m.db, t.sp, key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &rec, err
}

// prefetch reads the records that commands are about to change, before the machine is locked: nobody else changes
// them meanwhile, and so no reader of memory has to wait for the disk. What cannot be read is left out here, and
// fails where it is needed.
func (m *Machine) prefetch(sp space, cmds []command) map[string]*Record {
	recs := map[string]*Record{}
	for _, c := range cmds {
		for _, op := range c.entry.GetBatch().GetOps() {
			key := keyOf(op)
			if _, ok := recs[string(key)]; ok || key == nil {
				continue
			}
			rec, err := getRecord(m.db, sp, key)
			switch {
			case err == nil:
				recs[string(key)] = &rec
			case errors.Is(err, ErrNotFound):
				recs[string(key)] = nil
			}
		}
	}
	return recs
}

// keyOf is the key of the config record that an operation changes, nil if it changes none.
func keyOf(op *fsmpb.Op) []byte {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		return k.Put.Key
	case *fsmpb.Op_Delete:
		return k.Delete.Key
	case *fsmpb.Op_CompareAndSwap:
		return k.CompareAndSwap.Key
	}
	return nil
}

// broken ends the Apply: a record that cannot be read here may be readable on other replicas, so to go on would make
// this one differ from them.
func (t *txn) broken(err error) *fsmpb.Result {
	if t.err == nil {
		t.err = err
	}
	return status(fsmpb.Result_STATUS_UNSPECIFIED)
}
