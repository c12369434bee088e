package fsm

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// edits are what an Apply has seen and done of config records so far.
type edits struct {
	recs map[string]*Record // as read and changed; nil: absent
	at   int64              // wall clock of the running batch
	done uint32             // changes under the shard's present revision
}

// put writes a record.
func (t *txn) put(s *session, x *fsmpb.Put) *fsmpb.Result {
	old, err := t.record(x.Key)
	if err != nil {
		return t.broken(err)
	}
	return t.replace(x.Key, old, written(s, x))
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
	return t.replace(key, old, nil)
}

// compareAndSwap writes a record if it is the expected one.
func (t *txn) compareAndSwap(s *session, x *fsmpb.CompareAndSwap) *fsmpb.Result {
	old, err := t.record(x.Key)
	switch {
	case err != nil:
		return t.broken(err)
	case old == nil && x.Expect != 0:
		return status(fsmpb.Result_CONFLICT)
	case old != nil && uint64(old.Mod) != x.Expect:
		return &fsmpb.Result{Status: fsmpb.Result_CONFLICT, Record: toMessage(old)}
	}
	return t.replace(x.Key, old, written(s, &fsmpb.Put{Key: x.Key, Value: x.Value, Ttl: x.Ttl, Ephemeral: x.Ephemeral}))
}

// add adds to a record that is a number.
func (t *txn) add(x *fsmpb.Add) *fsmpb.Result {
	old, err := t.record(x.Key)
	if err != nil {
		return t.broken(err)
	}
	rec, n, reason := sum(old, x)
	if reason != "" {
		return invalid(reason)
	}
	res := t.replace(x.Key, old, rec)
	res.Number = n
	return res
}

// written is the record that a Put makes. Nothing of a former one stays: neither its session nor its TTL.
func written(s *session, x *fsmpb.Put) *Record {
	rec := &Record{Key: x.Key, Value: x.Value, TTL: time.Duration(x.Ttl)}
	if x.Ephemeral {
		rec.Session = s.id
	}
	return rec
}

// sum is the record that an Add makes of old, nil if it is absent, and its number; or the reason why it cannot. Its session
// and TTL stay.
func sum(old *Record, x *fsmpb.Add) (*Record, int64, string) {
	rec := &Record{Key: x.Key}
	n := int64(0)
	if old != nil {
		var err error
		if n, err = strconv.ParseInt(string(old.Value), 10, 64); err != nil {
			return nil, 0, "the value is not a number"
		}
		rec.Session, rec.TTL = old.Session, old.TTL
	}
	total := n + x.Delta
	if (total > n) != (x.Delta > 0) {
		return nil, 0, "the sum is beyond 64 bits"
	}
	rec.Value = strconv.AppendInt(nil, total, 10)
	return rec, total, ""
}

// replace is a change of one record under a revision of its own.
func (t *txn) replace(key []byte, old, rec *Record) *fsmpb.Result {
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Revision: t.revise()}
	t.change(key, old, rec)
	return res
}

// revise begins a revision, for all that one operation changes.
func (t *txn) revise() uint64 {
	t.st.counters.revision++
	t.edits.done = 0
	return uint64(t.st.counters.revision)
}

// change puts rec in the place of old under the present revision; nil: there is no record. It completes rec, which belongs to
// the machine from then on, writes both indexes and the history, and tells of the change.
func (t *txn) change(key []byte, old, rec *Record) {
	rev := t.st.counters.revision
	e := Event{Kind: Changed, Name: key, Revision: rev, Deleted: rec == nil}
	if rec != nil {
		rec.Create, rec.Mod, rec.Version = rev, rev, 1
		if old != nil {
			rec.Create, rec.Version = old.Create, old.Version+1
		}
		e.TTL = rec.TTL
		t.keepRecord(rec)
	} else {
		t.edits.recs[string(key)] = nil
		t.unset(t.sp.record(t.key[:0], key))
	}
	t.hang(key, old, rec)
	if old != nil && old.TTL != 0 && (rec == nil || rec.TTL == 0) {
		t.unset(t.sp.timed(t.key[:0], key))
	}
	t.val = appendChange(t.val[:0], key, t.edits.at, old, rec)
	t.set(t.sp.change(t.key[:0], rev, t.edits.done))
	t.edits.done++
	t.tell(e)
}

// keepRecord writes a record, and what it says of its TTL.
func (t *txn) keepRecord(rec *Record) {
	t.edits.recs[string(rec.Key)] = rec
	t.val = appendRecord(t.val[:0], rec)
	t.set(t.sp.record(t.key[:0], rec.Key))
	if rec.TTL != 0 {
		t.val = appendTimed(t.val[:0], rec)
		t.set(t.sp.timed(t.key[:0], rec.Key))
	}
}

// hang keeps the index of what goes with which session.
func (t *txn) hang(key []byte, old, rec *Record) {
	var was, is Token
	if old != nil {
		was = old.Session
	}
	if rec != nil {
		is = rec.Session
	}
	if was == is {
		return
	}
	if was != 0 {
		s := t.st.sessions[was]
		if s == nil {
			t.broken(fmt.Errorf("%w: record %q goes with session %d, which is not there", ErrCorrupt, key, was))
			return
		}
		s.ephemeral--
		t.unset(t.sp.ephemeral(t.key[:0], was, key))
	}
	if is != 0 {
		t.st.sessions[is].ephemeral++
		t.val = t.val[:0]
		t.set(t.sp.ephemeral(t.key[:0], is, key))
	}
}

// record reads a record as the running Apply has left it, nil if the key is absent.
func (t *txn) record(key []byte) (*Record, error) {
	if rec, ok := t.edits.recs[string(key)]; ok {
		return rec, nil
	}
	rec, err := getRecord(t.m.db, t.sp, key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &rec, err
}

// broken ends the Apply: a record that cannot be read here may be readable on other replicas, so to go on would make
// this one differ from them.
func (t *txn) broken(err error) *fsmpb.Result {
	if t.err == nil {
		t.err = err
	}
	return status(fsmpb.Result_STATUS_UNSPECIFIED)
}
