package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// token is the token of a granted operation.
func (s *shard) token(id Token, seq uint64) uint64 {
	s.t.Helper()
	res, ok := s.m.Result(id, seq)
	if !ok || res.Status != fsmpb.Result_OK {
		s.t.Fatalf("operation %d of session %d: got %v, want a grant", seq, id, res)
	}
	return res.Token
}

// state is the lock of a name, in short: the operations that hold it and those that wait.
func (s *shard) state(kind fsmpb.Lock_Kind, name string) string {
	l, ok := s.m.Lock(kind, []byte(name))
	if !ok {
		return "idle"
	}
	text := "held"
	for _, c := range l.Holders {
		text += fmt.Sprintf(" %s%d", c.Node, c.Seq)
	}
	text += " waits"
	for _, c := range l.Waiters {
		text += fmt.Sprintf(" %s%d", c.Node, c.Seq)
	}
	if len(l.Graces) > 0 {
		text += fmt.Sprintf(" closed %d", len(l.Graces))
	}
	return text
}

func (s *shard) wantState(kind fsmpb.Lock_Kind, name, want string) {
	s.t.Helper()
	if got := s.state(kind, name); got != want {
		s.t.Fatalf("%v %q: got %q, want %q", kind, name, got, want)
	}
}

// Readers share, each under a token of its own; a reader behind a waiting writer waits, so writers are not starved; and
// all readers at the head of the queue are granted at once.
func TestMachine_Lock_Shared(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	r1 := s.want(fsmpb.Result_OK, shareOp(a, 1, "x")).Token
	r2 := s.want(fsmpb.Result_OK, shareOp(b, 1, "x")).Token
	if r2 <= r1 {
		t.Errorf("readers' tokens: got %d and %d, want them to rise", r1, r2)
	}
	s.want(fsmpb.Result_QUEUED, lockOp(c, 1, "x"))
	s.want(fsmpb.Result_QUEUED, shareOp(a, 2, "x"))
	s.want(fsmpb.Result_QUEUED, shareOp(b, 2, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(a, 3, "x"))
	try := shareOp(b, 3, "x")
	try.GetLock().Try = true
	s.want(fsmpb.Result_HELD, try)
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", r1))
	s.wantState(fsmpb.Lock_LOCK, "x", "held b1 waits c1 a2 b2 a3")
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", r2))
	s.wantState(fsmpb.Lock_LOCK, "x", "held c1 waits a2 b2 a3")
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", s.token(c, 1)))
	s.wantState(fsmpb.Lock_LOCK, "x", "held a2 b2 waits a3")
	if s.token(a, 2) >= s.token(b, 2) {
		t.Error("the batch of readers has no rising tokens")
	}
	s.want(fsmpb.Result_REMOVED, cancelOp(a, 4, 3))
	s.want(fsmpb.Result_OK, shareOp(c, 2, "x"))
}

// A writer in front that gives up lets the readers behind it through.
func TestMachine_CancelLock_LetsReadersThrough(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	s.want(fsmpb.Result_OK, shareOp(a, 1, "x"))
	s.want(fsmpb.Result_QUEUED, lockOp(b, 1, "x"))
	s.want(fsmpb.Result_QUEUED, shareOp(a, 2, "x"))
	s.want(fsmpb.Result_REMOVED, cancelOp(b, 2, 1))
	s.wantState(fsmpb.Lock_LOCK, "x", "held a1 a2 waits")
}

// A name has one total of permits while it is in use, and is mutex or semaphore, not both; what does not fit is refused
// and told the present total. A second release gains nothing (case 30).
func TestCase030_PermitsMismatch(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	p := s.want(fsmpb.Result_OK, permitOp(a, 1, "s", 2)).Token
	for seq, op := range map[uint64]*fsmpb.Op{2: permitOp(b, 2, "s", 3), 3: lockOp(b, 3, "s"), 4: shareOp(b, 4, "s"),
		5: allOp(b, 5, "free", "s"), 6: tryOp(b, 6, "s")} {
		if res := s.want(fsmpb.Result_MISMATCH, op); res.Permits != 2 {
			t.Errorf("operation %d: told of %d permits, want 2", seq, res.Permits)
		}
	}
	s.want(fsmpb.Result_OK, lockOp(a, 7, "m"))
	if res := s.want(fsmpb.Result_MISMATCH, permitOp(b, 7, "m", 2)); res.Permits != 0 {
		t.Errorf("semaphore on a mutex: told of %d permits, want 0", res.Permits)
	}
	if _, ok := s.m.Lock(fsmpb.Lock_LOCK, []byte("free")); ok {
		t.Error("the refused operation left a place behind")
	}
	s.want(fsmpb.Result_OK, permitOp(b, 8, "s", 2))
	s.want(fsmpb.Result_QUEUED, permitOp(b, 9, "s", 2))
	s.want(fsmpb.Result_QUEUED, permitOp(b, 10, "s", 2))
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "s", p))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(0, 0, "s", p))
	s.wantState(fsmpb.Lock_LOCK, "s", "held b8 b9 waits b10")
	s.do(endOp(b))
	s.wantState(fsmpb.Lock_LOCK, "s", "idle")
	s.want(fsmpb.Result_OK, permitOp(a, 8, "s", 5))
}

// A total that grows grants more at once; one that shrinks takes nothing and takes effect as holders leave.
func TestMachine_SetPermits(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	s.want(fsmpb.Result_NOT_HELD, permitsOp("s", 3))
	for seq := range uint64(5) {
		s.do(permitOp(a, 1+seq, "s", 1))
	}
	s.wantState(fsmpb.Lock_LOCK, "s", "held a1 waits a2 a3 a4 a5")
	s.want(fsmpb.Result_OK, permitsOp("s", 3))
	s.wantState(fsmpb.Lock_LOCK, "s", "held a1 a2 a3 waits a4 a5")
	s.want(fsmpb.Result_OK, permitsOp("s", 2))
	s.wantState(fsmpb.Lock_LOCK, "s", "held a1 a2 a3 waits a4 a5")
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "s", s.token(a, 1)))
	s.wantState(fsmpb.Lock_LOCK, "s", "held a2 a3 waits a4 a5")
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "s", s.token(a, 2)))
	s.wantState(fsmpb.Lock_LOCK, "s", "held a3 a4 waits a5")
	s.want(fsmpb.Result_MISMATCH, permitOp(a, 9, "s", 1))
	s.want(fsmpb.Result_QUEUED, permitOp(a, 10, "s", 2))
	s.want(fsmpb.Result_OK, lockOp(a, 11, "m"))
	s.want(fsmpb.Result_MISMATCH, permitsOp("m", 2))
	s.want(fsmpb.Result_INVALID, permitsOp("s", 0))
	s.want(fsmpb.Result_INVALID, permitsOp("s", MaxPermits+1))
}

// However holders die, cancel and release, permits neither leak nor multiply (case 29).
func TestCase029_PermitsDoNotLeak(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 1))
	s := owned(t)
	const permits = 5
	var ids []Token
	seqs := map[Token]uint64{}
	for n := range 400 {
		if len(ids) < 8 {
			ids = append(ids, s.session(fmt.Sprint("n", n)))
		}
		i := r.IntN(len(ids))
		id := ids[i]
		seqs[id]++
		switch r.IntN(6) {
		case 0:
			s.do(endOp(id))
			ids = append(ids[:i], ids[i+1:]...)
		case 1:
			s.do(cancelOp(id, seqs[id], max(1, r.Uint64N(seqs[id]+2))))
		case 2:
			if l, ok := s.m.Lock(fsmpb.Lock_LOCK, []byte("s")); ok {
				tok := uint64(l.Holders[r.IntN(len(l.Holders))].Token)
				s.do(unlockOp(0, 0, "s", tok), unlockOp(0, 0, "s", tok))
			}
		default:
			s.do(permitOp(id, seqs[id], "s", permits))
		}
		if l, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("s")); len(l.Holders) > permits ||
			len(l.Holders) < permits && len(l.Waiters) > 0 {
			t.Fatalf("step %d: %d holders and %d waiters of %d permits", n, len(l.Holders), len(l.Waiters), permits)
		}
	}
	s.do(endOp(ids...))
	s.wantState(fsmpb.Lock_LOCK, "s", "idle")
	for seq := range uint64(permits) {
		s.want(fsmpb.Result_OK, permitOp(s.session("last"), 1+seq, "s", permits))
	}
}

// Kinds are name spaces: a mutex, an election and a job of one name never meet, and a guard on one says nothing of another.
func TestMachine_Lock_Kinds(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	m := Token(s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token)
	e := Token(s.want(fsmpb.Result_OK, lockOf(fsmpb.Lock_ELECTION, a, 2, "x")).Token)
	j := Token(s.want(fsmpb.Result_OK, lockOf(fsmpb.Lock_JOB, a, 3, "x")).Token)
	s.want(fsmpb.Result_NOT_HELD, unlockOf(fsmpb.Lock_ELECTION, "x", uint64(m)))
	for _, g := range []struct {
		kind  fsmpb.Guard_Kind
		token Token
		want  fsmpb.Result_Status
	}{
		{fsmpb.Guard_LOCK, m, fsmpb.Result_OK}, {fsmpb.Guard_ELECTION, e, fsmpb.Result_OK}, {fsmpb.Guard_JOB, j, fsmpb.Result_OK},
		{fsmpb.Guard_LOCK, e, fsmpb.Result_FENCED}, {fsmpb.Guard_ELECTION, j, fsmpb.Result_FENCED}, {fsmpb.Guard_JOB, m, fsmpb.Result_FENCED},
	} {
		s.want(g.want, guarded(touchOp(), g.kind, "x", g.token))
	}
	s.want(fsmpb.Result_OK, unlockOf(fsmpb.Lock_ELECTION, "x", uint64(e)))
	s.want(fsmpb.Result_FENCED, guarded(touchOp(), fsmpb.Guard_ELECTION, "x", e))
	s.wantState(fsmpb.Lock_LOCK, "x", "held a1 waits")
	s.wantState(fsmpb.Lock_ELECTION, "x", "idle")
}

// What cannot be combined, or is beyond a limit, is refused.
func TestMachine_Lock_InvalidCombinations(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	change := func(f func(k *fsmpb.Lock)) *fsmpb.Op {
		op := lockOp(a, 1, "x")
		f(op.GetLock())
		return op
	}
	names := make([][]byte, MaxNames+1)
	for i := range names {
		names[i] = fmt.Append(nil, i)
	}
	for i, op := range []*fsmpb.Op{
		change(func(k *fsmpb.Lock) { k.Permits = 1 }),
		change(func(k *fsmpb.Lock) { k.Mode = fsmpb.Lock_PERMIT }),
		change(func(k *fsmpb.Lock) { k.Mode, k.Permits = fsmpb.Lock_PERMIT, MaxPermits+1 }),
		change(func(k *fsmpb.Lock) { k.Mode, k.Kind = fsmpb.Lock_SHARED, fsmpb.Lock_ELECTION }),
		change(func(k *fsmpb.Lock) { k.Mode, k.Names = fsmpb.Lock_SHARED, names[:1] }),
		change(func(k *fsmpb.Lock) { k.Kind, k.Names = fsmpb.Lock_JOB, names[:1] }),
		change(func(k *fsmpb.Lock) { k.Names = [][]byte{[]byte("x")} }),
		change(func(k *fsmpb.Lock) { k.Names = [][]byte{nil} }),
		change(func(k *fsmpb.Lock) { k.Names = names }),
		change(func(k *fsmpb.Lock) { k.MaxHold = -1 }),
		change(func(k *fsmpb.Lock) { k.MaxHold = int64(MaxHold) + 1 }),
		change(func(k *fsmpb.Lock) { k.Grace = int64(MaxGrace) + 1 }),
		change(func(k *fsmpb.Lock) { k.Kind = -1 }),
		change(func(k *fsmpb.Lock) { k.Mode = -1 }),
		valueOp(-1, "x", 1, "v"), valueOp(0, "", 1, "v"), valueOp(0, "x", 1, string(make([]byte, MaxLockValue+1))),
		transferOp(0, "x", 1, ""), doneOp(0, 0, "x", 1, string(make([]byte, MaxJobResult+1)), 0, 0), doneOp(0, 0, "x", 1, "", -1, 0),
		forgetOp("", 0), graceOp(0, "", 1), forceOp(-1, "x", 1), startedOp(0, "", 1), revokeOp(0, ""),
	} {
		op.Seq = uint64(i + 1)
		op.Session = uint64(a)
		if res := s.want(fsmpb.Result_INVALID, op); res.Reason == "" {
			t.Errorf("operation %d: no reason", i)
		}
	}
	if diff := cmp.Diff([]LockState(nil), s.m.Holds(a)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
