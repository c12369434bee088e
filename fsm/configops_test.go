package fsm

import (
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

func ttlOp(key, value string, ttl time.Duration) *fsmpb.Op {
	op := putOp(key, value)
	op.GetPut().Ttl = int64(ttl)
	return op
}

func ephemeralOp(id Token, seq uint64, key, value string) *fsmpb.Op {
	op := by(id, seq, 0, putOp(key, value))
	op.GetPut().Ephemeral = true
	return op
}

func prefixOp(prefix string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_DeletePrefix{DeletePrefix: &fsmpb.DeletePrefix{Prefix: []byte(prefix)}}}
}

func addOp(key string, delta int64) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Add{Add: &fsmpb.Add{Key: []byte(key), Delta: delta}}}
}

func expireOp(refs ...*fsmpb.RecordRef) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_ExpireRecords{ExpireRecords: &fsmpb.ExpireRecords{Records: refs}}}
}

func ageOp(refs ...*fsmpb.RecordRef) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_AgeRecords{AgeRecords: &fsmpb.AgeRecords{Records: refs}}}
}

func ref(key string, mod Revision, age time.Duration) *fsmpb.RecordRef {
	return &fsmpb.RecordRef{Key: []byte(key), Mod: uint64(mod), Age: int64(age)}
}

func compactOp(oldest Revision) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Compact{Compact: &fsmpb.Compact{Oldest: uint64(oldest)}}}
}

// txnOp makes a transaction of conditions and of the operations that it does if they hold.
func txnOp(conditions []*fsmpb.Condition, then ...*fsmpb.TxnOp) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Txn{Txn: &fsmpb.Txn{If: conditions, Then: then}}}
}

// otherwise adds what a transaction does if its conditions do not hold.
func otherwise(op *fsmpb.Op, ops ...*fsmpb.TxnOp) *fsmpb.Op {
	op.GetTxn().Else = append(op.GetTxn().Else, ops...)
	return op
}

func conditions(cs ...*fsmpb.Condition) []*fsmpb.Condition { return cs }

func number(key string, t fsmpb.Condition_Target, c fsmpb.Condition_Compare, n int64) *fsmpb.Condition {
	return &fsmpb.Condition{Key: []byte(key), Target: t, Compare: c, Number: n}
}

func value(key string, c fsmpb.Condition_Compare, v string) *fsmpb.Condition {
	return &fsmpb.Condition{Key: []byte(key), Target: fsmpb.Condition_VALUE, Compare: c, Value: []byte(v)}
}

// part makes a plain operation one of a transaction.
func part(op *fsmpb.Op) *fsmpb.TxnOp {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		return &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Put{Put: k.Put}}
	case *fsmpb.Op_Delete:
		return &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Delete{Delete: k.Delete}}
	case *fsmpb.Op_Add:
		return &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Add{Add: k.Add}}
	}
	return &fsmpb.TxnOp{}
}

func readPart(key string) *fsmpb.TxnOp {
	return &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Read{Read: &fsmpb.Read{Key: []byte(key)}}}
}
