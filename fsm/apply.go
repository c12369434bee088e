package fsm

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// txn is one Apply: it changes the state in memory and gathers the same changes in a batch.
type txn struct {
	m     *Machine
	st    *state
	sp    space
	batch *pebble.Batch
	index uint64            // of the last entry applied
	edits edits             // of config records
	jobs  map[string][]byte // results of completed jobs, as read and recorded in this Apply
	out   *Applied          // of the running entry
	dirty []*session        // to be written at the end, once each
	saved counters          // as stored
	err   error             // the storage's first; the Apply fails
	key   []byte            // scratch
	val   []byte            // scratch
}

func (m *Machine) begin(sp space, recs map[string]*Record, jobs map[string][]byte) *txn {
	return &txn{m: m, st: m.st, sp: sp, batch: m.db.NewBatch(), index: m.applied.Load(), edits: edits{recs: recs}, jobs: jobs,
		saved: m.st.counters}
}

// run applies entries in order. It stops at the first that cannot be understood, whose error is also in its Applied,
// or when the storage fails.
func (t *txn) run(es []Entry, cmds []command) ([]Applied, error) {
	done := make([]Applied, 0, len(es))
	for i, e := range es {
		if e.Index <= t.index {
			continue
		}
		done = append(done, Applied{Index: e.Index, Attempt: cmds[i].entry.GetAttempt()})
		t.out = &done[len(done)-1]
		t.out.Err = t.entry(cmds[i])
		if t.err != nil {
			return nil, t.err
		}
		if errors.Is(t.out.Err, ErrVersion) {
			return done, t.out.Err
		}
		t.index = e.Index
	}
	return done, nil
}

func (t *txn) entry(c command) error {
	if err := c.admit(t.m.options.MaxVersion, t.st.counters.version); err != nil {
		return err
	}
	if claim := c.entry.GetClaim(); claim != nil {
		return t.claim(claim)
	}
	b := c.entry.GetBatch()
	if !t.st.claim.AcceptsStamp(Token(b.Stamp)) {
		return ErrStale
	}
	if err := t.m.options.understand(b); err != nil {
		return err
	}
	t.edits.at = b.At
	t.out.Results = make([]*fsmpb.Result, len(b.Ops))
	for i, op := range b.Ops {
		t.out.Results[i] = t.op(Token(b.Stamp), op)
	}
	return nil
}

// op applies one operation of a batch: its session must live, a copy gets the remembered result, and only what is
// new is done. What follows a Release in the same batch comes too late, like any other batch.
func (t *txn) op(stamp Token, op *fsmpb.Op) *fsmpb.Result {
	if !t.st.claim.AcceptsStamp(stamp) {
		return status(fsmpb.Result_FENCED)
	}
	if op.Session == 0 {
		return t.fresh(nil, op)
	}
	s := t.st.sessions[Token(op.Session)]
	switch {
	case s == nil:
		return status(fsmpb.Result_NO_SESSION)
	case op.Seq == 0 || op.Low >= op.Seq:
		return invalid("seq is not above zero and low")
	}
	t.acknowledge(s, op.Low)
	if i, ok := s.find(op.Seq); ok {
		return s.results[i].result
	}
	switch {
	case op.Seq <= s.low:
		return status(fsmpb.Result_BELOW)
	case len(s.results) >= MaxResults:
		return invalid("too many operations are not acknowledged")
	}
	res := t.fresh(s, op)
	if !s.ended {
		t.remember(s, op.Seq, trim(res))
	}
	return res
}

// fresh applies an operation that is no copy: it must be well formed and known in this version, and its guards current.
func (t *txn) fresh(s *session, op *fsmpb.Op) *fsmpb.Result {
	if reason := faultIn(op); reason != "" {
		return invalid(reason)
	}
	if t.m.options.since(op) > t.st.counters.version {
		return invalid("operation is newer than the cluster's version")
	}
	for _, g := range op.Guards {
		if !t.st.current(g) {
			return status(fsmpb.Result_FENCED)
		}
	}
	return t.do(s, op)
}

func (t *txn) do(s *session, op *fsmpb.Op) *fsmpb.Result {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_OpenSession:
		return t.openSession(k.OpenSession)
	case *fsmpb.Op_EndSessions:
		return t.endSessions(k.EndSessions)
	case *fsmpb.Op_EndFormer:
		return t.endFormer(k.EndFormer)
	case *fsmpb.Op_Renew:
		return t.renew(k.Renew.Ids)
	case *fsmpb.Op_Checkpoint:
		return t.checkpoint(k.Checkpoint.Sessions)
	case *fsmpb.Op_Release:
		return t.release(k.Release)
	case *fsmpb.Op_Raise:
		return t.raise(k.Raise.Version)
	case *fsmpb.Op_Lock:
		return t.lock(s, op.Seq, k.Lock)
	case *fsmpb.Op_Unlock:
		return t.unlock(k.Unlock)
	case *fsmpb.Op_CancelLock:
		return t.cancelLock(s, k.CancelLock.Seq)
	case *fsmpb.Op_Touch:
		return status(fsmpb.Result_OK)
	}
	if res := t.doConfig(s, op); res != nil {
		return res
	}
	return t.doHold(op)
}

// doConfig applies an operation on config records. Nil: it is none.
func (t *txn) doConfig(s *session, op *fsmpb.Op) *fsmpb.Result {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		return t.put(s, k.Put)
	case *fsmpb.Op_Delete:
		return t.deleteKey(k.Delete.Key)
	case *fsmpb.Op_CompareAndSwap:
		return t.compareAndSwap(s, k.CompareAndSwap)
	case *fsmpb.Op_Add:
		return t.add(k.Add)
	case *fsmpb.Op_Txn:
		return t.transact(s, k.Txn)
	case *fsmpb.Op_DeletePrefix:
		return t.deletePrefix(k.DeletePrefix.Prefix)
	case *fsmpb.Op_ExpireRecords:
		return t.expireRecords(k.ExpireRecords.Records)
	case *fsmpb.Op_AgeRecords:
		return t.ageRecords(k.AgeRecords.Records)
	case *fsmpb.Op_Compact:
		return t.compact(Revision(k.Compact.Oldest))
	}
	return nil
}

// doHold applies an operation on what is held or waited for.
func (t *txn) doHold(op *fsmpb.Op) *fsmpb.Result {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_SetPermits:
		return t.setPermits(k.SetPermits)
	case *fsmpb.Op_SetValue:
		return t.setValue(k.SetValue)
	case *fsmpb.Op_Transfer:
		return t.transfer(k.Transfer)
	case *fsmpb.Op_Force:
		return t.force(k.Force)
	case *fsmpb.Op_RequestRevoke:
		return t.requestRevoke(k.RequestRevoke)
	case *fsmpb.Op_Started:
		return t.started(k.Started)
	case *fsmpb.Op_EndGrace:
		return t.endGrace(k.EndGrace)
	case *fsmpb.Op_JobDone:
		return t.jobDone(k.JobDone)
	case *fsmpb.Op_JobForget:
		return t.jobForget(k.JobForget)
	case *fsmpb.Op_PassTime:
		return t.passTime(k.PassTime)
	}
	return invalid("no kind") // faultIn has refused it
}

// current reports whether the grant that a guard names is current.
func (st *state) current(g *fsmpb.Guard) bool {
	switch g.Kind {
	case fsmpb.Guard_LOCK:
		return st.holder(fsmpb.Lock_LOCK, g.Name, g.Token) != nil
	case fsmpb.Guard_ELECTION:
		return st.holder(fsmpb.Lock_ELECTION, g.Name, g.Token) != nil
	case fsmpb.Guard_JOB:
		return st.holder(fsmpb.Lock_JOB, g.Name, g.Token) != nil
	case fsmpb.Guard_OWNERSHIP:
		return st.claim.AcceptsStamp(Token(g.Token))
	case fsmpb.Guard_SESSION:
		return st.sessions[Token(g.Token)] != nil
	}
	return false
}

// commit writes what is gathered. Nothing is synced.
func (t *txn) commit() error {
	for _, s := range t.dirty {
		s.dirty = false
		if !s.ended {
			t.val = appendSession(t.val[:0], s)
			t.set(t.sp.number(t.key[:0], kindSession, uint64(s.id)))
		}
	}
	if t.st.counters != t.saved {
		t.val = appendCounters(t.val[:0], t.st.counters)
		t.set(t.sp.start(t.key[:0], kindCounters))
	}
	if t.index != t.m.applied.Load() {
		t.val = binary.BigEndian.AppendUint64(t.val[:0], t.index)
		t.set(t.sp.start(t.key[:0], kindApplied))
	}
	if t.err != nil || t.batch.Empty() {
		return t.err
	}
	return t.batch.Commit(pebble.NoSync)
}

// mint makes a new token. Tokens are never given back.
func (t *txn) mint() Token {
	t.st.counters.tokens++
	return t.st.counters.tokens
}

// touched marks a session to be written at the end of the Apply.
func (t *txn) touched(s *session) {
	if !s.dirty {
		s.dirty = true
		t.dirty = append(t.dirty, s)
	}
}

// set writes the scratch value under key, which becomes the scratch key.
func (t *txn) set(key []byte) {
	t.key = key
	if err := t.batch.Set(key, t.val, nil); err != nil && t.err == nil {
		t.err = err
	}
}

// unset deletes key, which becomes the scratch key.
func (t *txn) unset(key []byte) {
	t.key = key
	if err := t.batch.Delete(key, nil); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *txn) tell(e Event) { t.out.Events = append(t.out.Events, e) }

func status(s fsmpb.Result_Status) *fsmpb.Result { return &fsmpb.Result{Status: s} }

func invalid(reason string) *fsmpb.Result {
	return &fsmpb.Result{Status: fsmpb.Result_INVALID, Reason: reason}
}
