package fsm

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A waiter whose session ended while it queued is never granted the lock; the next living one is, in the very entry
// that frees it (case 14).
func TestCase014_GrantOnlyToLiveSessions(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	held := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(c, 1, "x"))
	s.do(endOp(b))
	s.do(unlockOp(a, 2, "x", held))
	res, _ := s.m.Result(c, 1)
	if res.GetStatus() != fsmpb.Result_OK {
		t.Fatalf("c: got %v, want a grant", res)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("%d/1 %d x", c, res.Token)}, s.grants()); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	s.want(fsmpb.Result_NO_SESSION, lockOp(b, 1, "x"))
	if res, ok := s.m.Result(b, 1); ok {
		t.Errorf("b: got %v, want nothing", res)
	}
}

// The retried Unlock of an old hold leaves the new hold alone, whether the copy is recognised or not (case 17).
func TestCase017_OldUnlockLeavesNewHold(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	first := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	s.want(fsmpb.Result_OK, unlockOp(a, 2, "x", first))
	second := s.want(fsmpb.Result_OK, lockOp(a, 3, "x")).Token
	s.want(fsmpb.Result_OK, unlockOp(a, 2, "x", first))       // the copy
	s.want(fsmpb.Result_NOT_HELD, unlockOp(a, 4, "x", first)) // the old handle again, as an operation of its own
	s.want(fsmpb.Result_NOT_HELD, unlockOp(0, 0, "x", first))
	if x, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("x")); len(x.Holders) != 1 || x.Holders[0].Token != Token(second) {
		t.Errorf("lock: got %+v, want it held under %d", x, second)
	}
}

// However Lock, its copies and its cancellation are ordered, nothing is held at the end, and a copy that comes later
// changes nothing (case 20).
func TestCase020_CancelLeavesNoOrphan(t *testing.T) {
	lock := func(id Token) *fsmpb.Op { return lockOp(id, 1, "x") }
	cancel := func(id Token) *fsmpb.Op { return cancelOp(id, 2, 1) }
	free := func(Token) *fsmpb.Op { return nil } // the former holder unlocks
	orders := map[string][]func(Token) *fsmpb.Op{
		"LockCancel":             {lock, cancel},
		"CancelLock":             {cancel, lock},
		"LockLockCancel":         {lock, lock, cancel},
		"LockCancelLock":         {lock, cancel, lock},
		"CancelLockCancel":       {cancel, lock, cancel},
		"QueuedGrantedCancelled": {lock, free, cancel, lock},
		"QueuedCancelledFreed":   {lock, cancel, free, lock, cancel},
		"CancelledFreedLate":     {cancel, free, lock, cancel, lock},
	}
	for name, order := range orders {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprint(name, taken), func(t *testing.T) {
				s := owned(t)
				other, id, next := s.session("other"), s.session("n"), s.session("next")
				var held uint64
				if taken {
					held = s.want(fsmpb.Result_OK, lockOp(other, 1, "x")).Token
				}
				for _, step := range order {
					if op := step(id); op != nil {
						s.do(op)
					} else {
						s.do(unlockOp(0, 0, "x", held))
					}
				}
				s.do(unlockOp(0, 0, "x", held))
				if got := s.m.Holds(id); got != nil {
					t.Errorf("got %+v, want nothing held", got)
				}
				s.want(fsmpb.Result_OK, tryOp(next, 1, "x"))
			})
		}
	}
}
