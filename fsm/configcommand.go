package fsm

import (
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

// faultInConfig is the reason why an operation on config records is not well formed, empty if it is.
func faultInConfig(op *fsmpb.Op) string {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_Put:
		if k.Put.Ttl != 0 || k.Put.Ephemeral {
			return errUnfinished.Error()
		}
		return first(within("key", len(k.Put.Key), 1, MaxKey), within("value", len(k.Put.Value), 0, MaxValue))
	case *fsmpb.Op_Delete:
		return within("key", len(k.Delete.Key), 1, MaxKey)
	case *fsmpb.Op_CompareAndSwap:
		if k.CompareAndSwap.Ttl != 0 || k.CompareAndSwap.Ephemeral {
			return errUnfinished.Error()
		}
		return first(within("key", len(k.CompareAndSwap.Key), 1, MaxKey),
			within("value", len(k.CompareAndSwap.Value), 0, MaxValue))
	}
	if bodyOfConfig(op) != nil {
		return errUnfinished.Error()
	}
	return ""
}
