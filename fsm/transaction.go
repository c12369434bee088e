package fsm

import (
	"bytes"
	"cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// step is one change that a transaction will make.
type step struct {
	key      []byte
	old, rec *Record
}

// transact does one list of a transaction's operations, or nothing if one of them cannot be done. No list changes a key twice,
// so all of it follows from the state before, and is worked out before anything is changed.
func (t *txn) transact(s *session, x *fsmpb.Txn) *fsmpb.Result {
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Succeeded: true}
	for _, c := range x.If {
		rec, err := t.record(c.Key)
		if err != nil {
			return t.broken(err)
		}
		res.Succeeded = res.Succeeded && holds(c, rec)
	}
	ops := x.Then
	if !res.Succeeded {
		ops = x.Else
	}
	var steps []step
	for _, op := range ops {
		old, err := t.record(keyIn(op))
		if err != nil {
			return t.broken(err)
		}
		answer, rec, reason := plan(s, op, old)
		if reason != "" {
			return invalid(reason)
		}
		res.Answers = append(res.Answers, answer)
		if rec != nil || answer.Deleted {
			steps = append(steps, step{keyIn(op), old, rec})
		}
	}
	if len(steps) > 0 {
		t.revise()
	}
	for _, c := range steps {
		t.change(c.key, c.old, c.rec)
	}
	res.Revision = uint64(t.st.counters.revision)
	return bounded(res, maxAnswers)
}

// plan is the answer of one operation of a transaction on a record, nil if it is absent, and the record that it writes; or
// the reason why it cannot be done.
func plan(s *session, op *fsmpb.TxnOp, old *Record) (answer *fsmpb.TxnAnswer, rec *Record, reason string) {
	answer = &fsmpb.TxnAnswer{}
	switch k := op.Kind.(type) {
	case *fsmpb.TxnOp_Put:
		rec = written(s, k.Put)
	case *fsmpb.TxnOp_Delete:
		answer.Deleted = old != nil
	case *fsmpb.TxnOp_Add:
		rec, answer.Number, reason = sum(old, k.Add)
	case *fsmpb.TxnOp_Read:
		if old != nil {
			answer.Found, answer.Record = true, toMessage(old)
		}
	}
	return answer, rec, reason
}

// holds reports whether a condition holds for a record, nil if it is absent.
func holds(c *fsmpb.Condition, rec *Record) bool {
	var n int64
	switch {
	case c.Target == fsmpb.Condition_VALUE && rec == nil:
		return c.Compare == fsmpb.Condition_NOT_EQUAL
	case c.Target == fsmpb.Condition_VALUE:
		return compares(c.Compare, bytes.Compare(rec.Value, c.Value))
	case rec == nil:
	case c.Target == fsmpb.Condition_EXISTS:
		n = 1
	case c.Target == fsmpb.Condition_VERSION:
		n = rec.Version
	case c.Target == fsmpb.Condition_MOD:
		n = int64(rec.Mod)
	case c.Target == fsmpb.Condition_CREATE:
		n = int64(rec.Create)
	}
	return compares(c.Compare, cmp.Compare(n, c.Number))
}

// compares reports whether an order, as cmp.Compare tells it, is the wanted one.
func compares(want fsmpb.Condition_Compare, order int) bool {
	switch want {
	case fsmpb.Condition_NOT_EQUAL:
		return order != 0
	case fsmpb.Condition_LESS:
		return order < 0
	case fsmpb.Condition_GREATER:
		return order > 0
	}
	return order == 0
}

// keyIn is the key that an operation of a transaction names, nil if it is none.
func keyIn(op *fsmpb.TxnOp) []byte {
	switch k := op.Kind.(type) {
	case *fsmpb.TxnOp_Put:
		return k.Put.Key
	case *fsmpb.TxnOp_Delete:
		return k.Delete.Key
	case *fsmpb.TxnOp_Add:
		return k.Add.Key
	case *fsmpb.TxnOp_Read:
		return k.Read.Key
	}
	return nil
}
