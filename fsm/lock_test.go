package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A free lock is granted at once; others queue and are granted first come first served, each under a larger token.
func TestMachine_Lock_Queue(t *testing.T) {
	s := owned(t)
	var ids []Token
	for _, n := range []string{"a", "b", "c"} {
		ids = append(ids, s.session(n))
	}
	last := s.want(fsmpb.Result_OK, lockOp(ids[0], 1, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(ids[1], 1, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(ids[2], 1, "x"))
	for i, id := range ids[1:] {
		s.want(fsmpb.Result_OK, unlockOp(ids[i], 2, "x", last))
		res, ok := s.m.Result(id, 1)
		if !ok || res.Status != fsmpb.Result_OK || res.Token <= last {
			t.Fatalf("session %d: got %v, want a grant above %d", id, res, last)
		}
		if diff := cmp.Diff([]string{fmt.Sprintf("%d/1 %d x", id, res.Token)}, s.grants()); diff != "" {
			t.Errorf("grants (-want +got):\n%s", diff)
		}
		last = res.Token
	}
	s.want(fsmpb.Result_OK, unlockOp(ids[2], 2, "x", last))
	if _, ok := s.m.Lock(fsmpb.Lock_LOCK, []byte("x")); ok {
		t.Error("the lock exists while nobody holds it")
	}
}

// Try answers HELD and leaves no place in the queue.
func TestMachine_Lock_Try(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	tok := s.want(fsmpb.Result_OK, tryOp(a, 1, "x")).Token
	s.want(fsmpb.Result_HELD, tryOp(b, 1, "x"))
	s.want(fsmpb.Result_OK, unlockOp(a, 2, "x", tok))
	s.want(fsmpb.Result_HELD, tryOp(b, 1, "x"))
	s.want(fsmpb.Result_OK, tryOp(b, 2, "x"))
}

// A session that asks for what it has waits behind itself: each operation stands for itself.
func TestMachine_Lock_NotReentrant(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	tok := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(a, 2, "x"))
	s.want(fsmpb.Result_HELD, tryOp(a, 3, "x"))
	s.want(fsmpb.Result_OK, unlockOp(a, 4, "x", tok))
	if res, _ := s.m.Result(a, 2); res.GetStatus() != fsmpb.Result_OK || res.Token <= tok {
		t.Errorf("second hold: got %v, want a grant above %d", res, tok)
	}
}

// Unlock touches no grant but the one with that name and token.
func TestMachine_Unlock_NotHeld(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	x := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	y := s.want(fsmpb.Result_OK, lockOp(a, 2, "y")).Token
	s.want(fsmpb.Result_NOT_HELD, unlockOp(a, 3, "x", y))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(a, 4, "z", x))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(a, 5, "x", 0))
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", x))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(0, 0, "x", x))
}

// Cancelling says what the Lock operation had come to, and undoes it in every case.
func TestMachine_CancelLock(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	s.want(fsmpb.Result_OK, lockOp(a, 1, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(c, 1, "x"))

	s.want(fsmpb.Result_REMOVED, cancelOp(b, 2, 1))
	s.want(fsmpb.Result_CANCELLED, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_NOT_HELD, cancelOp(b, 3, 1))
	s.want(fsmpb.Result_RELEASED, cancelOp(a, 2, 1))
	s.want(fsmpb.Result_CANCELLED, lockOp(a, 1, "x"))
	if x, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("x")); len(x.Holders) != 1 || x.Holders[0].Session != c || len(x.Waiters) != 0 {
		t.Errorf("lock: got %+v, want c's alone", x)
	}

	s.want(fsmpb.Result_UNSEEN, cancelOp(b, 5, 4))
	s.want(fsmpb.Result_CANCELLED, lockOp(b, 4, "y"))
	if _, ok := s.m.Lock(fsmpb.Lock_LOCK, []byte("y")); ok {
		t.Error("the late copy made a hold")
	}
	s.do(by(b, 6, 5, touchOp()))
	s.want(fsmpb.Result_NOT_HELD, cancelOp(b, 7, 4))
	s.want(fsmpb.Result_BELOW, lockOp(b, 4, "y"))
	s.want(fsmpb.Result_INVALID, cancelOp(b, 8, 8))
	s.want(fsmpb.Result_INVALID, cancelOp(b, 9, 0))
	s.want(fsmpb.Result_INVALID, cancelOp(0, 0, 9))
}

// A QUEUED that was acknowledged is still granted, found and cancelled by its number.
func TestMachine_Lock_AcknowledgedWhileQueued(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	tok := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	s.do(by(b, 2, 1, touchOp()))
	if res, ok := s.m.Result(b, 1); !ok || res.Status != fsmpb.Result_QUEUED {
		t.Errorf("waiting: got %v, want QUEUED", res)
	}
	s.want(fsmpb.Result_OK, unlockOp(a, 2, "x", tok))
	if res, ok := s.m.Result(b, 1); !ok || res.Status != fsmpb.Result_OK || res.Token <= tok {
		t.Errorf("granted: got %v, want OK and a token above %d", res, tok)
	}
	s.want(fsmpb.Result_BELOW, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_RELEASED, cancelOp(b, 3, 1))
	if res, ok := s.m.Result(b, 1); ok {
		t.Errorf("cancelled: got %v, want nothing", res)
	}
}

// Malformed lock operations are refused, and remembered as such.
func TestMachine_Lock_Invalid(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	s.want(fsmpb.Result_INVALID, lockOp(a, 1, ""))
	s.want(fsmpb.Result_INVALID, lockOp(a, 2, string(make([]byte, MaxName+1))))
	s.want(fsmpb.Result_OK, lockOp(a, 3, string(make([]byte, MaxName))))
	s.want(fsmpb.Result_INVALID, lockOp(0, 0, "x"))
	big := lockOp(a, 4, "x")
	big.GetLock().Value = make([]byte, MaxLockValue+1)
	s.want(fsmpb.Result_INVALID, big)
	s.want(fsmpb.Result_INVALID, lockOp(a, 1, "now well formed"))
	s.want(fsmpb.Result_INVALID, unlockOp(a, 5, "", 1))
}

// Values are shown with holders and waiters, and a session's part of each lock is found by the session.
func TestMachine_Holds(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	op := lockOp(a, 1, "x")
	op.GetLock().Value = []byte("mine")
	op.GetLock().MaxHold, op.GetLock().Grace = 5e9, 6e9
	tok := Token(s.want(fsmpb.Result_OK, op).Token)
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	y := Token(s.want(fsmpb.Result_OK, lockOp(b, 2, "y")).Token)
	wantX := LockState{Name: "x", Holders: []Claimant{{Session: a, Node: "a", Seq: 1, Token: tok, Ticket: tok, Value: []byte("mine"),
		MaxHold: 5 * time.Second, Grace: 6 * time.Second}}, Waiters: []Claimant{{Session: b, Node: "b", Seq: 1, Ticket: y - 1}}}
	wantY := LockState{Name: "y", Holders: []Claimant{{Session: b, Node: "b", Seq: 2, Token: y, Ticket: y}}}
	if diff := cmp.Diff([]LockState{wantX, wantY}, s.m.Locks(fsmpb.Lock_LOCK, "", "", 0)); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]LockState{wantY}, s.m.Locks(fsmpb.Lock_LOCK, "y", "", 0)); diff != "" {
		t.Errorf("locks under y (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]LockState{wantX}, s.m.Locks(fsmpb.Lock_LOCK, "", "", 1)); diff != "" {
		t.Errorf("first lock (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]LockState{wantY}, s.m.Locks(fsmpb.Lock_LOCK, "", "x", 9)); diff != "" {
		t.Errorf("locks after x (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]LockState{{Name: "x", Waiters: wantX.Waiters}, wantY}, s.m.Holds(b)); diff != "" {
		t.Errorf("b's holds (-want +got):\n%s", diff)
	}
}

// A guarded operation is applied only while its grant is current; a guard on an old grant never passes again.
func TestMachine_Apply_Guards(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	tok := Token(s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token)
	for _, c := range []struct {
		kind  fsmpb.Guard_Kind
		name  string
		token Token
		want  fsmpb.Result_Status
	}{
		{fsmpb.Guard_LOCK, "x", tok, fsmpb.Result_OK},
		{fsmpb.Guard_LOCK, "y", tok, fsmpb.Result_FENCED},
		{fsmpb.Guard_LOCK, "x", tok - 1, fsmpb.Result_FENCED},
		{fsmpb.Guard_OWNERSHIP, "", s.stamp, fsmpb.Result_OK},
		{fsmpb.Guard_OWNERSHIP, "", s.stamp - 1, fsmpb.Result_FENCED},
		{fsmpb.Guard_SESSION, "", a, fsmpb.Result_OK},
		{fsmpb.Guard_SESSION, "", a + 100, fsmpb.Result_FENCED},
		{fsmpb.Guard_KIND_UNSPECIFIED, "", a, fsmpb.Result_INVALID},
	} {
		op := guarded(putOp("k", "v"), c.kind, c.name, c.token)
		if c.want != fsmpb.Result_INVALID && s.m.Current(op.Guards[0]) != (c.want == fsmpb.Result_OK) {
			t.Errorf("current %v: want %v", op.Guards[0], c.want)
		}
		s.want(c.want, op)
	}
	both := guarded(guarded(putOp("k", "v"), fsmpb.Guard_LOCK, "x", tok), fsmpb.Guard_SESSION, "", a+100)
	s.want(fsmpb.Result_FENCED, both)
	s.want(fsmpb.Result_FENCED, by(a, 9, 0, guarded(putOp("k", "v"), fsmpb.Guard_LOCK, "x", tok+1)))
	s.want(fsmpb.Result_OK, unlockOp(a, 2, "x", uint64(tok)))
	again := Token(s.want(fsmpb.Result_OK, lockOp(a, 3, "x")).Token)
	s.want(fsmpb.Result_FENCED, guarded(putOp("k", "v"), fsmpb.Guard_LOCK, "x", tok))
	s.want(fsmpb.Result_OK, guarded(putOp("k", "v"), fsmpb.Guard_LOCK, "x", again))
}
