package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// told are the events of the last entry that concern holds, as "kind/reason name seq token".
func (s *shard) told() []string {
	var got []string
	for _, e := range s.last.Events {
		got = append(got, fmt.Sprintf("%d/%d %s %d %d", e.Kind, e.Reason, e.Name, e.Seq, e.Token))
	}
	return got
}

func (s *shard) wantTold(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.told()); diff != "" {
		s.t.Fatalf("events (-want +got):\n%s", diff)
	}
}

func tell(k EventKind, why Reason, name string, seq, token uint64) string {
	return fmt.Sprintf("%d/%d %s %d %d", k, why, name, seq, token)
}

// A leader changes its value under the same token; nobody else does.
func TestMachine_SetValue(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	tok := s.want(fsmpb.Result_OK, lockOf(fsmpb.Lock_ELECTION, a, 1, "e")).Token
	s.want(fsmpb.Result_OK, valueOp(fsmpb.Lock_ELECTION, "e", tok, "new"))
	s.wantTold(tell(ValueChanged, 0, "e", 1, tok))
	l, _ := s.m.Lock(fsmpb.Lock_ELECTION, []byte("e"))
	if got := l.Holders[0]; string(got.Value) != "new" || uint64(got.Token) != tok {
		t.Errorf("leader: got %+v, want the new value under %d", got, tok)
	}
	s.want(fsmpb.Result_NOT_HELD, valueOp(fsmpb.Lock_ELECTION, "e", tok+1, "x"))
	s.want(fsmpb.Result_NOT_HELD, valueOp(fsmpb.Lock_LOCK, "e", tok, "x"))
}

// A grant is handed to the first waiter of the named node, before those who came earlier, or stays where it is.
func TestMachine_Transfer(t *testing.T) {
	const e = fsmpb.Lock_ELECTION
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	tok := s.want(fsmpb.Result_OK, lockOf(e, a, 1, "e")).Token
	s.want(fsmpb.Result_QUEUED, lockOf(e, b, 1, "e"))
	s.want(fsmpb.Result_QUEUED, lockOf(e, c, 1, "e"))
	s.want(fsmpb.Result_QUEUED, lockOf(e, c, 2, "e"))
	s.want(fsmpb.Result_NOT_FOUND, transferOp(e, "e", tok, "a"))
	s.want(fsmpb.Result_NOT_FOUND, transferOp(e, "e", tok, "nobody"))
	s.want(fsmpb.Result_NOT_HELD, transferOp(e, "e", tok+1, "c"))
	s.wantState(e, "e", "held a1 waits b1 c1 c2")
	next := s.want(fsmpb.Result_OK, transferOp(e, "e", tok, "c")).Token
	if next <= tok || next != s.token(c, 1) {
		t.Errorf("transferred: got token %d, want c's own above %d", next, tok)
	}
	s.wantTold(tell(Freed, Transferred, "e", 1, tok), tell(Granted, 0, "e", 1, next))
	s.wantState(e, "e", "held c1 waits b1 c2")
	s.want(fsmpb.Result_NOT_HELD, unlockOf(e, "e", tok))
	two := s.want(fsmpb.Result_OK, allOp(a, 5, "x", "y")).Token
	s.want(fsmpb.Result_INVALID, transferOp(fsmpb.Lock_LOCK, "x", two, "b"))
}

// A grant that is ended against its holder's will is told to it, the next is granted in the same entry, and a copy of
// the operation no longer finds a grant.
func TestMachine_Force(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	tok := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_NOT_HELD, forceOp(fsmpb.Lock_LOCK, "x", tok+1))
	s.want(fsmpb.Result_NOT_HELD, forceOp(fsmpb.Lock_LOCK, "y", tok))
	s.want(fsmpb.Result_OK, forceOp(fsmpb.Lock_LOCK, "x", tok))
	s.wantTold(tell(Freed, Forced, "x", 1, tok), tell(Granted, 0, "x", 1, s.token(b, 1)))
	s.want(fsmpb.Result_CANCELLED, lockOp(a, 1, "x"))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(a, 2, "x", tok))
	s.wantState(fsmpb.Lock_LOCK, "x", "held b1 waits")
}

// A request to give up reaches every holder, is found by who asks later, and takes nothing from anybody.
func TestMachine_RequestRevoke(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	s.want(fsmpb.Result_NOT_HELD, revokeOp(fsmpb.Lock_LOCK, "x"))
	r1, r2 := s.want(fsmpb.Result_OK, shareOp(a, 1, "x")).Token, s.want(fsmpb.Result_OK, shareOp(b, 2, "x")).Token
	s.want(fsmpb.Result_QUEUED, lockOp(a, 3, "x"))
	for range 2 {
		s.want(fsmpb.Result_OK, revokeOp(fsmpb.Lock_LOCK, "x"))
		s.wantTold(tell(RevokeRequested, 0, "x", 1, r1), tell(RevokeRequested, 0, "x", 2, r2))
	}
	l, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("x"))
	for _, c := range l.Holders {
		if !c.RevokeRequested {
			t.Errorf("holder %+v: not marked", c)
		}
	}
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", r1))
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", r2))
	if l, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("x")); l.Holders[0].RevokeRequested {
		t.Error("the mark passed on to the next holder")
	}
}

// An owner finds the holds that it has to time, and which of them have started, until they end.
func TestMachine_TimedHolds(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	timed := func(seq uint64, name string) uint64 {
		op := lockOp(a, seq, name)
		op.GetLock().MaxHold = int64(time.Minute)
		return s.do(op)[0].Token
	}
	x, y := timed(1, "x"), timed(2, "y")
	s.want(fsmpb.Result_OK, lockOp(a, 3, "z"))
	timed(4, "z") // waits
	s.want(fsmpb.Result_NOT_HELD, startedOp(fsmpb.Lock_LOCK, "x", y))
	s.want(fsmpb.Result_OK, startedOp(fsmpb.Lock_LOCK, "y", y))
	s.wantTold(tell(HoldStarted, 0, "y", 2, y))
	s.want(fsmpb.Result_OK, startedOp(fsmpb.Lock_LOCK, "y", y))
	s.wantTold()
	list := func() (got []string) {
		for _, h := range s.m.TimedHolds() {
			got = append(got, fmt.Sprint(h.Name, h.Token, h.MaxHold, h.Started))
		}
		return got
	}
	if diff := cmp.Diff([]string{fmt.Sprint("x", x, time.Minute, false), fmt.Sprint("y", y, time.Minute, true)}, list()); diff != "" {
		t.Errorf("timed (-want +got):\n%s", diff)
	}
	s.do(forceOp(fsmpb.Lock_LOCK, "y", y), unlockOp(0, 0, "x", x))
	if got := list(); got != nil {
		t.Errorf("timed after the ends: got %v, want none", got)
	}
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "z", s.token(a, 3)))
	if got := list(); len(got) != 1 {
		t.Errorf("timed after z was granted: got %v, want it", got)
	}
}

// graced is a shard whose name x, with grace, a holds and b waits for.
func graced(t *testing.T) (s *shard, a, b Token, tok uint64) {
	s = owned(t)
	a, b = s.session("a"), s.session("b")
	op := lockOp(a, 1, "x")
	op.GetLock().Grace = int64(time.Second)
	tok = s.want(fsmpb.Result_OK, op).Token
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	return s, a, b, tok
}

// After the death of a holder with a grace nobody is granted until the owner says so: for silence or by a restart, over
// a failover, for waiters and for those who try.
func TestMachine_EndGrace(t *testing.T) {
	for name, die := range map[string]func(a Token) *fsmpb.Op{
		"Expired": func(a Token) *fsmpb.Op { return endOp(a) },
		"Restarted": func(Token) *fsmpb.Op {
			return &fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: "a", Incarnation: 2}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, a, b, tok := graced(t)
			s.do(die(a))
			s.wantState(fsmpb.Lock_LOCK, "x", "held waits b1 closed 1")
			want := []Grace{{Name: "x", Token: Token(tok), Length: time.Second}}
			if diff := cmp.Diff(want, s.m.Graces()); diff != "" {
				t.Errorf("graces (-want +got):\n%s", diff)
			}
			if got, want := s.told()[0:2], []string{tell(Freed, Expired, "x", 1, tok), tell(Closed, 0, "x", 1, tok)}; cmp.Diff(want, got) != "" {
				t.Errorf("events: got %v, want %v first", got, want)
			}
			s.claim("b", 2)
			s.want(fsmpb.Result_HELD, tryOp(b, 2, "x"))
			s.want(fsmpb.Result_NOT_FOUND, graceOp(fsmpb.Lock_LOCK, "x", tok+1))
			s.want(fsmpb.Result_OK, graceOp(fsmpb.Lock_LOCK, "x", tok))
			s.wantTold(tell(Reopened, 0, "x", 0, tok), tell(Granted, 0, "x", 1, s.token(b, 1)))
			s.want(fsmpb.Result_NOT_FOUND, graceOp(fsmpb.Lock_LOCK, "x", tok))
			s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", s.token(b, 1)))
			s.wantState(fsmpb.Lock_LOCK, "x", "idle")
			if got := s.m.Graces(); got != nil {
				t.Errorf("graces at the end: got %v, want none", got)
			}
		})
	}
}

// No other end of a grant closes the name, nor the death of one that only waited.
func TestMachine_EndGrace_OnlyAfterDeath(t *testing.T) {
	closing := endOp()
	for name, end := range map[string]func(a Token, tok uint64) *fsmpb.Op{
		"Unlock":   func(_ Token, tok uint64) *fsmpb.Op { return unlockOp(0, 0, "x", tok) },
		"Cancel":   func(a Token, _ uint64) *fsmpb.Op { return cancelOp(a, 2, 1) },
		"Force":    func(_ Token, tok uint64) *fsmpb.Op { return forceOp(fsmpb.Lock_LOCK, "x", tok) },
		"Transfer": func(_ Token, tok uint64) *fsmpb.Op { return transferOp(fsmpb.Lock_LOCK, "x", tok, "b") },
		"Closed": func(a Token, _ uint64) *fsmpb.Op {
			closing.GetEndSessions().Ids, closing.GetEndSessions().Expired = []uint64{uint64(a)}, false
			return closing
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, a, b, tok := graced(t)
			s.do(end(a, tok))
			s.wantState(fsmpb.Lock_LOCK, "x", "held b1 waits")
			waiting := lockOp(s.session("c"), 1, "x")
			waiting.GetLock().Grace = 1
			s.want(fsmpb.Result_QUEUED, waiting)
			s.do(endOp(Token(waiting.Session), b))
			s.wantState(fsmpb.Lock_LOCK, "x", "idle")
		})
	}
}

// Each dead permit closes the semaphore on its own, and the total stays while it is closed; each of several names is
// closed on its own too.
func TestMachine_EndGrace_Several(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	grace := func(op *fsmpb.Op) *fsmpb.Op { op.GetLock().Grace = 5; return op }
	p := s.want(fsmpb.Result_OK, grace(permitOp(a, 1, "s", 3))).Token
	q := s.want(fsmpb.Result_OK, grace(permitOp(b, 1, "s", 3))).Token
	all := s.want(fsmpb.Result_OK, grace(allOp(a, 2, "x", "y"))).Token
	s.do(endOp(b, a))
	s.wantState(fsmpb.Lock_LOCK, "s", "held waits closed 2")
	s.want(fsmpb.Result_MISMATCH, permitOp(c, 1, "s", 2))
	s.want(fsmpb.Result_QUEUED, permitOp(c, 2, "s", 3))
	s.want(fsmpb.Result_OK, graceOp(fsmpb.Lock_LOCK, "s", p))
	s.wantState(fsmpb.Lock_LOCK, "s", "held waits c2 closed 1")
	s.want(fsmpb.Result_OK, graceOp(fsmpb.Lock_LOCK, "s", q))
	s.wantState(fsmpb.Lock_LOCK, "s", "held c2 waits")
	s.want(fsmpb.Result_OK, graceOp(fsmpb.Lock_LOCK, "x", all))
	s.wantState(fsmpb.Lock_LOCK, "x", "idle")
	s.want(fsmpb.Result_QUEUED, allOp(c, 3, "x", "y"))
	s.want(fsmpb.Result_OK, graceOp(fsmpb.Lock_LOCK, "y", all))
	s.wantState(fsmpb.Lock_LOCK, "x", "held c3 waits")
}
