package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// deletePrefix removes the first records whose keys begin with prefix.
func (t *txn) deletePrefix(prefix []byte) *fsmpb.Result {
	t.readable()
	recs, more, err := firstRecords(t.batch, t.sp, prefix)
	if err != nil {
		return t.broken(err)
	}
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Deleted: uint64(len(recs)), More: more}
	if len(recs) > 0 {
		res.Revision = t.revise()
	}
	for _, rec := range recs {
		t.change(rec.Key, rec, nil)
	}
	return res
}

// firstRecords are the first records whose keys begin with prefix, as many as one operation may remove, and whether there are
// more.
func firstRecords(r pebble.Reader, sp space, prefix []byte) (recs []*Record, more bool, err error) {
	low := sp.record(nil, prefix)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: successor(low)})
	if err != nil {
		return nil, false, err
	}
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, false, errors.Join(err, it.Close())
		}
		rec, err := decodeRecord(it.Key()[spaceLen+1:], v)
		if err != nil {
			return nil, false, errors.Join(err, it.Close())
		}
		size += len(rec.Value)
		if len(recs) == MaxDeleted || len(recs) > 0 && size > MaxDeletedBytes {
			return recs, true, it.Close()
		}
		recs = append(recs, &rec)
	}
	return recs, false, it.Close()
}

// expireRecords removes records with a TTL that did not change since an owner saw it run out.
func (t *txn) expireRecords(refs []*fsmpb.RecordRef) *fsmpb.Result {
	res := status(fsmpb.Result_OK)
	size := 0
	for _, ref := range refs {
		rec, err := t.timed(ref)
		if err != nil {
			return t.broken(err)
		}
		if rec == nil {
			continue
		}
		if size += len(rec.Value); res.Deleted > 0 && size > MaxDeletedBytes {
			res.More = true
			break
		}
		if res.Deleted == 0 {
			res.Revision = t.revise()
		}
		res.Deleted++
		t.change(rec.Key, rec, nil)
	}
	return res
}

// ageRecords records for how long records with a TTL have existed, for the next owner. More than the TTL says nothing more.
func (t *txn) ageRecords(refs []*fsmpb.RecordRef) *fsmpb.Result {
	for _, ref := range refs {
		rec, err := t.timed(ref)
		if err != nil {
			return t.broken(err)
		}
		if rec == nil || time.Duration(ref.Age) <= rec.Age || rec.Age == rec.TTL {
			continue
		}
		aged := *rec
		aged.Age = min(time.Duration(ref.Age), rec.TTL)
		t.keepRecord(&aged)
	}
	return status(fsmpb.Result_OK)
}

// timed is the record that a reference names, nil if it has changed since or has no TTL.
func (t *txn) timed(ref *fsmpb.RecordRef) (*Record, error) {
	rec, err := t.record(ref.Key)
	if err != nil || rec == nil || uint64(rec.Mod) != ref.Mod || rec.TTL == 0 {
		return nil, err
	}
	return rec, nil
}

// deleteEphemeral removes the records that go with sessions which end, all under one revision, by session and key. Zero: there
// were none.
func (t *txn) deleteEphemeral(ended []*session) (rev uint64) {
	var owners []*session
	for _, s := range ended {
		if s.ephemeral > 0 {
			owners = append(owners, s)
		}
	}
	if len(owners) == 0 {
		return 0
	}
	slices.SortFunc(owners, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	t.readable()
	rev = t.revise()
	for _, s := range owners {
		keys, err := ephemeralKeys(t.batch, t.sp, s)
		if err != nil {
			t.broken(err)
			return 0
		}
		for _, key := range keys {
			rec, err := t.record(key)
			if err == nil && rec == nil {
				err = fmt.Errorf("%w: no record %q, which goes with session %d", ErrCorrupt, key, s.id)
			}
			if err != nil {
				t.broken(err)
				return 0
			}
			t.change(key, rec, nil)
		}
	}
	return rev
}

// ephemeralKeys are the keys of the records that go with a session.
func ephemeralKeys(r pebble.Reader, sp space, s *session) (keys [][]byte, err error) {
	low := sp.ephemeral(nil, s.id, nil)
	err = eachBetween(r, low, successor(low), func(suffix, _ []byte) error {
		keys = append(keys, slices.Clone(suffix[1+8:]))
		return nil
	})
	return keys, err
}

// compact forgets the history before a revision.
func (t *txn) compact(oldest Revision) *fsmpb.Result {
	c := &t.st.counters
	switch {
	case oldest > c.revision+1:
		return invalid("history does not reach so far")
	case oldest <= c.oldest:
		return status(fsmpb.Result_OK)
	}
	if err := t.batch.DeleteRange(t.sp.change(nil, c.oldest, 0), t.sp.change(nil, oldest, 0), nil); err != nil {
		return t.broken(err)
	}
	c.oldest = oldest
	return status(fsmpb.Result_OK)
}

// readable makes what this Apply has written so far readable through its batch. Few need it, and it makes every write slower,
// so it is done when it is needed.
func (t *txn) readable() {
	if t.batch.Indexed() {
		return
	}
	b := t.m.db.NewIndexedBatch()
	if err := errors.Join(b.Apply(t.batch, nil), t.batch.Close()); err != nil {
		t.broken(err)
	}
	t.batch = b
}
