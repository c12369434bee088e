package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// bodyOfConfig is the message of an operation on config records that is no plain write.
func bodyOfConfig(op *fsmpb.Op) proto.Message {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_DeletePrefix:
		return k.DeletePrefix
	case *fsmpb.Op_Add:
		return k.Add
	case *fsmpb.Op_Txn:
		return k.Txn
	case *fsmpb.Op_ExpireRecords:
		return k.ExpireRecords
	case *fsmpb.Op_AgeRecords:
		return k.AgeRecords
	case *fsmpb.Op_Compact:
		return k.Compact
	}
	return nil
}

// unknownInConfig looks at the messages below an operation on config records.
func unknownInConfig(op *fsmpb.Op) bool {
	for _, x := range op.GetExpireRecords().GetRecords() {
		if unknown(x) {
			return true
		}
	}
	for _, x := range op.GetAgeRecords().GetRecords() {
		if unknown(x) {
			return true
		}
	}
	x := op.GetTxn()
	for _, c := range x.GetIf() {
		if unknown(c) || c.Target > fsmpb.Condition_CREATE || c.Compare > fsmpb.Condition_GREATER {
			return true
		}
	}
	for _, o := range x.GetThen() {
		if unknownInTxn(o) {
			return true
		}
	}
	for _, o := range x.GetElse() {
		if unknownInTxn(o) {
			return true
		}
	}
	return false
}

func unknownInTxn(o *fsmpb.TxnOp) bool {
	return unknown(o) || unknown(o.GetPut()) || unknown(o.GetDelete()) || unknown(o.GetAdd()) || unknown(o.GetRead())
}

// faultInConfig is the reason why an operation on config records is not well formed, empty if it is.
func faultInConfig(op *fsmpb.Op) string {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		return faultInPut(op, k.Put)
	case *fsmpb.Op_Delete:
		return faultInKey(k.Delete.Key)
	case *fsmpb.Op_CompareAndSwap:
		x := k.CompareAndSwap
		return faultInPut(op, &fsmpb.Put{Key: x.Key, Value: x.Value, Ttl: x.Ttl, Ephemeral: x.Ephemeral})
	case *fsmpb.Op_DeletePrefix:
		return within("prefix", len(k.DeletePrefix.Prefix), 0, MaxKey)
	case *fsmpb.Op_Add:
		return faultInKey(k.Add.Key)
	case *fsmpb.Op_Txn:
		return faultInTxn(op, k.Txn)
	case *fsmpb.Op_ExpireRecords:
		return faultInRefs(k.ExpireRecords.Records)
	case *fsmpb.Op_AgeRecords:
		return faultInRefs(k.AgeRecords.Records)
	}
	return ""
}

func faultInKey(key []byte) string { return within("key", len(key), 1, MaxKey) }

func faultInPut(op *fsmpb.Op, x *fsmpb.Put) string {
	if x.Ephemeral && x.Ttl != 0 {
		return "both ephemeral and with a ttl"
	}
	if x.Ephemeral && op.Session == 0 {
		return "needs a session"
	}
	return first(faultInKey(x.Key), within("value", len(x.Value), 0, MaxValue), span("ttl", x.Ttl, MaxRecordTTL))
}

func faultInRefs(refs []*fsmpb.RecordRef) string {
	if len(refs) > MaxRefs {
		return fmt.Sprintf("%d records, not up to %d", len(refs), MaxRefs)
	}
	for _, x := range refs {
		if reason := faultInKey(x.Key); reason != "" {
			return reason
		}
		if x.Age < 0 {
			return "negative age"
		}
	}
	return ""
}

func faultInTxn(op *fsmpb.Op, x *fsmpb.Txn) string {
	if n := len(x.If) + max(len(x.Then), len(x.Else)); n > MaxTxnOps {
		return fmt.Sprintf("%d conditions and operations, not up to %d", n, MaxTxnOps)
	}
	size := 0
	for _, c := range x.If {
		if reason := faultInCondition(c); reason != "" {
			return reason
		}
		size += len(c.Key) + len(c.Value)
	}
	for _, ops := range [][]*fsmpb.TxnOp{x.Then, x.Else} {
		changes := map[string]bool{}
		for _, o := range ops {
			if reason := faultInTxnOp(op, o); reason != "" {
				return reason
			}
			key := keyIn(o)
			size += len(key) + len(o.GetPut().GetValue())
			if o.GetRead() != nil {
				continue
			}
			if changes[string(key)] {
				return "the same key changed twice"
			}
			changes[string(key)] = true
		}
	}
	if size > MaxTxnBytes {
		return fmt.Sprintf("keys and values of %d bytes, not up to %d", size, MaxTxnBytes)
	}
	return ""
}

func faultInTxnOp(op *fsmpb.Op, o *fsmpb.TxnOp) string {
	if o.Kind == nil {
		return "operation without a kind"
	}
	if x := o.GetPut(); x != nil {
		return faultInPut(op, x)
	}
	return faultInKey(keyIn(o))
}

func faultInCondition(c *fsmpb.Condition) string {
	switch {
	case c.Target < 0 || c.Compare < 0:
		return "negative target or comparison"
	case c.Target == fsmpb.Condition_EXISTS && (c.Compare != fsmpb.Condition_EQUAL || c.Number != 0 && c.Number != 1):
		return "existence is equal to 0 or 1"
	case c.Target == fsmpb.Condition_VALUE && c.Number != 0, c.Target != fsmpb.Condition_VALUE && len(c.Value) > 0:
		return "a value's condition with a number, or a number's with a value"
	}
	return first(faultInKey(c.Key), within("value", len(c.Value), 0, MaxValue))
}
