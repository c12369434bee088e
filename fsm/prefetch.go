package fsm

import (
	"errors"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// prefetchBytes is how much of records a prefetch keeps.
const prefetchBytes = 32 << 20

// prefetch reads the records that commands are about to change, before the machine is locked: nobody else changes
// them meanwhile, and so no reader of memory has to wait for the disk. What cannot be read, or is too much to keep, is
// left out here, and read, or fails, where it is needed.
func (m *Machine) prefetch(sp space, cmds []command) map[string]*Record {
	recs, size := map[string]*Record{}, 0
	one := func(key []byte) {
		if _, ok := recs[string(key)]; ok || size >= prefetchBytes {
			return
		}
		rec, err := getRecord(m.db, sp, key)
		switch {
		case err == nil:
			recs[string(key)] = &rec
			size += len(rec.Value)
		case errors.Is(err, ErrNotFound):
			recs[string(key)] = nil
		}
	}
	for _, c := range cmds {
		for _, op := range c.entry.GetBatch().GetOps() {
			keysOf(op, one)
			if x := op.GetDeletePrefix(); x != nil && size < prefetchBytes {
				first, _, _ := firstRecords(m.db, sp, x.Prefix)
				for _, rec := range first {
					recs[string(rec.Key)] = rec
					size += len(rec.Value)
				}
			}
		}
	}
	return recs
}

// keysOf calls yield for each key of a config record that an operation names.
func keysOf(op *fsmpb.Op, yield func([]byte)) {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		yield(k.Put.Key)
	case *fsmpb.Op_Delete:
		yield(k.Delete.Key)
	case *fsmpb.Op_CompareAndSwap:
		yield(k.CompareAndSwap.Key)
	case *fsmpb.Op_Add:
		yield(k.Add.Key)
	case *fsmpb.Op_Txn:
		for _, c := range k.Txn.If {
			yield(c.Key)
		}
		for _, x := range k.Txn.Then {
			yield(keyIn(x))
		}
		for _, x := range k.Txn.Else {
			yield(keyIn(x))
		}
	case *fsmpb.Op_ExpireRecords:
		for _, x := range k.ExpireRecords.Records {
			yield(x.Key)
		}
	case *fsmpb.Op_AgeRecords:
		for _, x := range k.AgeRecords.Records {
			yield(x.Key)
		}
	}
}
