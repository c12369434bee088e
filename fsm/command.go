package fsm

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// command is a decoded entry. Decoding needs no state, so it is done before the machine is locked.
type command struct {
	entry *fsmpb.Entry // nil: cannot be decoded
}

func parse(data []byte) command {
	e := new(fsmpb.Entry)
	if err := proto.Unmarshal(data, e); err != nil {
		return command{}
	}
	return command{e}
}

// admit decides whether an entry may be applied at all: ErrInvalid, the same on every replica, refuses it;
// ErrVersion stops the machine, since others may understand it. What only a batch's operations hold is looked at
// after its stamp, because a refused batch has no effect whatever it holds.
func (c command) admit(max, current uint32) error {
	e := c.entry
	if e == nil {
		return fmt.Errorf("%w: cannot be decoded", ErrInvalid)
	}
	switch {
	case e.Version > max:
		return fmt.Errorf("%w: entry has version %d, this machine knows up to %d", ErrVersion, e.Version, max)
	case unknown(e), unknown(e.GetClaim()), unknown(e.GetBatch()):
		return fmt.Errorf("%w: entry holds something unknown", ErrVersion)
	case e.Version == 0:
		return fmt.Errorf("%w: entry has no version", ErrInvalid)
	case e.Version > current:
		return fmt.Errorf("%w: entry has version %d, the cluster %d", ErrInvalid, e.Version, current)
	case e.GetClaim() == nil && e.GetBatch() == nil:
		return fmt.Errorf("%w: entry is neither claim nor batch", ErrInvalid)
	}
	return nil
}

// understand checks that a batch's operations are all known to this machine.
func (o Options) understand(b *fsmpb.Batch) error {
	for i, op := range b.Ops {
		if op.Kind == nil && !unknown(op) {
			continue // a malformed operation, not a new one
		}
		if o.since(op) == 0 || unknown(op) || unknownInside(op) {
			return fmt.Errorf("%w: operation %d is unknown or holds something unknown", ErrVersion, i)
		}
		if r := op.GetRaise(); r != nil && r.Version > o.MaxVersion {
			return fmt.Errorf("%w: cluster is raised to %d, this machine knows up to %d", ErrVersion, r.Version, o.MaxVersion)
		}
	}
	return nil
}

// since is the version that brought the operation's kind, zero for an unknown one.
func since(op *fsmpb.Op) uint32 {
	if body(op) == nil {
		return 0
	}
	return 1
}

// body is the message of the operation's kind.
func body(op *fsmpb.Op) proto.Message {
	switch k := op.Kind.(type) {
	case *fsmpb.Op_OpenSession:
		return k.OpenSession
	case *fsmpb.Op_EndSessions:
		return k.EndSessions
	case *fsmpb.Op_EndFormer:
		return k.EndFormer
	case *fsmpb.Op_Renew:
		return k.Renew
	case *fsmpb.Op_Checkpoint:
		return k.Checkpoint
	case *fsmpb.Op_Release:
		return k.Release
	case *fsmpb.Op_Raise:
		return k.Raise
	case *fsmpb.Op_Lock:
		return k.Lock
	case *fsmpb.Op_Unlock:
		return k.Unlock
	case *fsmpb.Op_CancelLock:
		return k.CancelLock
	case *fsmpb.Op_Put:
		return k.Put
	case *fsmpb.Op_Delete:
		return k.Delete
	case *fsmpb.Op_CompareAndSwap:
		return k.CompareAndSwap
	case *fsmpb.Op_Touch:
		return k.Touch
	}
	if m := bodyOfConfig(op); m != nil {
		return m
	}
	return bodyOfHold(op)
}

func unknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// unknownInside looks at the messages below an operation.
func unknownInside(op *fsmpb.Op) bool {
	for _, g := range op.Guards {
		if unknown(g) || g.Kind > fsmpb.Guard_JOB {
			return true
		}
	}
	for _, s := range op.GetCheckpoint().GetSessions() {
		if unknown(s) {
			return true
		}
	}
	for _, s := range op.GetRelease().GetSessions() {
		if unknown(s) {
			return true
		}
	}
	k, ok := body(op).(kinded)
	return unknown(body(op)) || unknownInConfig(op) || ok && k.GetKind() > fsmpb.Lock_JOB || op.GetLock().GetMode() > fsmpb.Lock_PERMIT
}

// request turns a claim's entry into plain values, and checks their bounds.
func request(c *fsmpb.Claim) (ClaimRequest, error) {
	r := ClaimRequest{Node: c.Node, Incarnation: c.Incarnation, Term: c.Term, Lease: time.Duration(c.Lease),
		Replaces: Token(c.Replaces), Keep: c.Keep, Waited: time.Duration(c.Waited)}
	switch {
	case len(c.Node) == 0 || len(c.Node) > MaxNode:
		return r, fmt.Errorf("%w: node of %d bytes", ErrInvalid, len(c.Node))
	case r.Lease <= 0 || r.Lease > MaxLease:
		return r, fmt.Errorf("%w: lease of %v", ErrInvalid, r.Lease)
	case r.Waited < 0:
		return r, fmt.Errorf("%w: waited %v", ErrInvalid, r.Waited)
	}
	return r, nil
}

// faultIn is the reason why an operation is not well formed, empty if it is.
func faultIn(op *fsmpb.Op) string {
	for _, g := range op.Guards {
		if g.Kind <= fsmpb.Guard_KIND_UNSPECIFIED {
			return "guard without a kind"
		}
	}
	switch k := op.Kind.(type) {
	case nil:
		return "no kind"
	case *fsmpb.Op_OpenSession:
		o := k.OpenSession
		return first(within("node", len(o.Node), 1, MaxNode), within("nonce", len(o.Nonce), NonceSize, NonceSize),
			positive("ttl", o.Ttl, MaxTTL))
	case *fsmpb.Op_EndSessions:
		return tooMany(len(k.EndSessions.Ids))
	case *fsmpb.Op_Renew:
		return tooMany(len(k.Renew.Ids))
	case *fsmpb.Op_EndFormer:
		return within("node", len(k.EndFormer.Node), 1, MaxNode)
	case *fsmpb.Op_Checkpoint:
		return faultInSilences(k.Checkpoint.Sessions)
	case *fsmpb.Op_Release:
		return faultInSilences(k.Release.Sessions)
	case *fsmpb.Op_Lock:
		return first(needsSession(op), faultInLock(k.Lock))
	case *fsmpb.Op_CancelLock:
		if k.CancelLock.Seq == 0 || k.CancelLock.Seq == op.Seq {
			return "cancels nothing or itself"
		}
		return needsSession(op)
	}
	return first(faultInConfig(op), faultInHold(op))
}

func faultInSilences(ss []*fsmpb.Checkpoint_Silence) string {
	for _, s := range ss {
		if s.Silence < 0 {
			return "negative silence"
		}
	}
	return tooMany(len(ss))
}

func tooMany(ids int) string {
	if ids > MaxIDs {
		return fmt.Sprintf("%d sessions, not up to %d", ids, MaxIDs)
	}
	return ""
}

func needsSession(op *fsmpb.Op) string {
	if op.Session == 0 {
		return "needs a session"
	}
	return ""
}

func within(what string, n, low, high int) string {
	if n < low || n > high {
		return fmt.Sprintf("%s of %d bytes, not %d to %d", what, n, low, high)
	}
	return ""
}

func positive(what string, ns int64, limit time.Duration) string {
	if ns <= 0 || ns > int64(limit) {
		return fmt.Sprintf("%s of %v, not up to %v", what, time.Duration(ns), limit)
	}
	return ""
}

// first is the first reason that is not empty.
func first(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}
