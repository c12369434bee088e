package fsm

import (
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

func claimEntry(c *fsmpb.Claim) *fsmpb.Entry {
	return &fsmpb.Entry{Version: 1, Attempt: 1, Body: &fsmpb.Entry_Claim{Claim: c}}
}

func batchEntry(stamp Token, ops ...*fsmpb.Op) *fsmpb.Entry {
	return &fsmpb.Entry{Version: 1, Attempt: 1, Body: &fsmpb.Entry_Batch{Batch: &fsmpb.Batch{Stamp: uint64(stamp), Ops: ops}}}
}

func openOp(node string, incarnation uint64, ttl time.Duration) *fsmpb.Op {
	nonce := make([]byte, NonceSize)
	copy(nonce, fmt.Sprintf("%s.%d", node, incarnation))
	return &fsmpb.Op{Kind: &fsmpb.Op_OpenSession{OpenSession: &fsmpb.OpenSession{Node: node, Incarnation: incarnation,
		Ttl: int64(ttl), Nonce: nonce}}}
}

func endOp(ids ...Token) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: numbers(ids), Expired: true}}}
}

func renewOp(ids ...Token) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Renew{Renew: &fsmpb.Renew{Ids: numbers(ids)}}}
}

func checkpointOp(id Token, silence time.Duration) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Checkpoint{Checkpoint: &fsmpb.Checkpoint{Sessions: []*fsmpb.Checkpoint_Silence{
		{Id: uint64(id), Silence: int64(silence)}}}}}
}

func releaseOp(id Token, silence time.Duration) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Release{Release: &fsmpb.Release{Sessions: []*fsmpb.Checkpoint_Silence{
		{Id: uint64(id), Silence: int64(silence)}}}}}
}

func raiseOp(version uint32) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Raise{Raise: &fsmpb.Raise{Version: version}}}
}

func touchOp() *fsmpb.Op { return &fsmpb.Op{Kind: &fsmpb.Op_Touch{Touch: &fsmpb.Touch{}}} }

func lockOp(id Token, seq uint64, name string) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Lock{Lock: &fsmpb.Lock{Name: []byte(name)}}}
}

func tryOp(id Token, seq uint64, name string) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Lock{Lock: &fsmpb.Lock{Name: []byte(name), Try: true}}}
}

func unlockOp(id Token, seq uint64, name string, token uint64) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Unlock{Unlock: &fsmpb.Unlock{Name: []byte(name), Token: token}}}
}

func cancelOp(id Token, seq, of uint64) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_CancelLock{CancelLock: &fsmpb.CancelLock{Seq: of}}}
}

func lockOf(kind fsmpb.Lock_Kind, id Token, seq uint64, name string) *fsmpb.Op {
	op := lockOp(id, seq, name)
	op.GetLock().Kind = kind
	return op
}

func shareOp(id Token, seq uint64, name string) *fsmpb.Op {
	op := lockOp(id, seq, name)
	op.GetLock().Mode = fsmpb.Lock_SHARED
	return op
}

func permitOp(id Token, seq uint64, name string, permits uint32) *fsmpb.Op {
	op := lockOp(id, seq, name)
	op.GetLock().Mode, op.GetLock().Permits = fsmpb.Lock_PERMIT, permits
	return op
}

func allOp(id Token, seq uint64, names ...string) *fsmpb.Op {
	op := lockOp(id, seq, names[0])
	for _, n := range names[1:] {
		op.GetLock().Names = append(op.GetLock().Names, []byte(n))
	}
	return op
}

func unlockOf(kind fsmpb.Lock_Kind, name string, token uint64) *fsmpb.Op {
	op := unlockOp(0, 0, name, token)
	op.GetUnlock().Kind = kind
	return op
}

func permitsOp(name string, permits uint32) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_SetPermits{SetPermits: &fsmpb.SetPermits{Name: []byte(name), Permits: permits}}}
}

func valueOp(kind fsmpb.Lock_Kind, name string, token uint64, value string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_SetValue{SetValue: &fsmpb.SetValue{Kind: kind, Name: []byte(name), Token: token, Value: []byte(value)}}}
}

func transferOp(kind fsmpb.Lock_Kind, name string, token uint64, node string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Transfer{Transfer: &fsmpb.Transfer{Kind: kind, Name: []byte(name), Token: token, Node: node}}}
}

func forceOp(kind fsmpb.Lock_Kind, name string, token uint64) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Force{Force: &fsmpb.Force{Kind: kind, Name: []byte(name), Token: token}}}
}

func revokeOp(kind fsmpb.Lock_Kind, name string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_RequestRevoke{RequestRevoke: &fsmpb.RequestRevoke{Kind: kind, Name: []byte(name)}}}
}

func startedOp(kind fsmpb.Lock_Kind, name string, token uint64) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Started{Started: &fsmpb.Started{Kind: kind, Name: []byte(name), Token: token}}}
}

func graceOp(kind fsmpb.Lock_Kind, name string, token uint64) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_EndGrace{EndGrace: &fsmpb.EndGrace{Kind: kind, Name: []byte(name), Token: token}}}
}

func doneOp(id Token, seq uint64, name string, token uint64, result string, keep time.Duration, at int64) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_JobDone{JobDone: &fsmpb.JobDone{Name: []byte(name), Token: token,
		Result: []byte(result), Keep: int64(keep), At: at}}}
}

func forgetOp(name string, done Token) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_JobForget{JobForget: &fsmpb.JobForget{Name: []byte(name), Done: uint64(done)}}}
}

func passOp(after, d time.Duration) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_PassTime{PassTime: &fsmpb.PassTime{After: int64(after), Time: int64(d)}}}
}

func putOp(key, value string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Put{Put: &fsmpb.Put{Key: []byte(key), Value: []byte(value)}}}
}

func deleteOp(key string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Delete{Delete: &fsmpb.Delete{Key: []byte(key)}}}
}

func casOp(key string, expect uint64, value string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_CompareAndSwap{CompareAndSwap: &fsmpb.CompareAndSwap{Key: []byte(key),
		Expect: expect, Value: []byte(value)}}}
}

// by makes an operation a session's.
func by(id Token, seq, low uint64, op *fsmpb.Op) *fsmpb.Op {
	op.Session, op.Seq, op.Low = uint64(id), seq, low
	return op
}

// guarded adds a guard to an operation.
func guarded(op *fsmpb.Op, kind fsmpb.Guard_Kind, name string, token Token) *fsmpb.Op {
	op.Guards = append(op.Guards, &fsmpb.Guard{Kind: kind, Name: []byte(name), Token: uint64(token)})
	return op
}

func numbers(ids []Token) []uint64 {
	n := make([]uint64, len(ids))
	for i, id := range ids {
		n[i] = uint64(id)
	}
	return n
}
