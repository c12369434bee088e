package fsm

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// kinded is an operation on a lock of some kind.
type kinded interface{ GetKind() fsmpb.Lock_Kind }

// named is an operation on one name.
type named interface{ GetName() []byte }

// bodyOfHold is the message of an operation on what is held or waited for.
func bodyOfHold(op *fsmpb.Op) proto.Message {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_SetPermits:
		return k.SetPermits
	case *fsmpb.Op_SetValue:
		return k.SetValue
	case *fsmpb.Op_Transfer:
		return k.Transfer
	case *fsmpb.Op_Force:
		return k.Force
	case *fsmpb.Op_RequestRevoke:
		return k.RequestRevoke
	case *fsmpb.Op_Started:
		return k.Started
	case *fsmpb.Op_EndGrace:
		return k.EndGrace
	case *fsmpb.Op_JobDone:
		return k.JobDone
	case *fsmpb.Op_JobForget:
		return k.JobForget
	case *fsmpb.Op_PassTime:
		return k.PassTime
	}
	return nil
}

// faultInHold is the reason why an operation on what is held or waited for is not well formed, empty if it is.
func faultInHold(op *fsmpb.Op) string {
	m := body(op)
	if x, ok := m.(kinded); ok && x.GetKind() < 0 {
		return "negative kind"
	}
	if x, ok := m.(named); ok {
		if reason := within("name", len(x.GetName()), 1, MaxName); reason != "" {
			return reason
		}
	}
	switch k := op.Kind.(type) {
	case *fsmpb.Op_SetPermits:
		return permits(k.SetPermits.Permits)
	case *fsmpb.Op_SetValue:
		return within("value", len(k.SetValue.Value), 0, MaxLockValue)
	case *fsmpb.Op_Transfer:
		return within("node", len(k.Transfer.Node), 1, MaxNode)
	case *fsmpb.Op_JobDone:
		if k.JobDone.Keep < 0 || k.JobDone.At < 0 {
			return "negative keep or time"
		}
		return within("result", len(k.JobDone.Result), 0, MaxJobResult)
	case *fsmpb.Op_PassTime:
		return positive("time", k.PassTime.Time, MaxPass)
	}
	return ""
}

// faultInLock is the reason why a Lock is not well formed, empty if it is.
func faultInLock(k *fsmpb.Lock) string {
	if len(k.Names) > MaxNames {
		return fmt.Sprintf("%d further names, not up to %d", len(k.Names), MaxNames)
	}
	if k.Kind < 0 || k.Mode < 0 || !combines(k.Kind, k.Mode, 1+len(k.Names)) {
		return "kind, mode and number of names do not combine"
	}
	seen := make(map[string]bool, len(k.Names))
	for name := range namesOf(k) {
		if reason := within("name", len(name), 1, MaxName); reason != "" {
			return reason
		}
		if seen[string(name)] {
			return "the same name twice"
		}
		seen[string(name)] = true
	}
	if k.Mode == fsmpb.Lock_PERMIT {
		if reason := permits(k.Permits); reason != "" {
			return reason
		}
	} else if k.Permits != 0 {
		return "permits of what is no semaphore"
	}
	return first(within("value", len(k.Value), 0, MaxLockValue), span("max hold", k.MaxHold, MaxHold),
		span("grace", k.Grace, MaxGrace))
}

func permits(n uint32) string {
	if n == 0 || n > MaxPermits {
		return fmt.Sprintf("%d permits, not 1 to %d", n, MaxPermits)
	}
	return ""
}

// span checks a time that may be zero.
func span(what string, ns int64, limit time.Duration) string {
	if ns < 0 || ns > int64(limit) {
		return fmt.Sprintf("%s of %v, not 0 to %v", what, time.Duration(ns), limit)
	}
	return ""
}
