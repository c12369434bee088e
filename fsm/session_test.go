package fsm

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// The same nonce answers the same session, and renews nothing: the client counts from its first sending.
func TestMachine_OpenSession_Again(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.do(checkpointOp(id, 4*time.Second))
	heard := s.m.st.counters.tokens
	if again := s.session("n"); again != id {
		t.Errorf("same nonce: got session %d, want %d", again, id)
	}
	want := Session{ID: id, Node: "n", Incarnation: 1, TTL: 10 * time.Second, Heard: heard, Silence: 4 * time.Second}
	if got, _ := s.m.Session(id); got != want {
		t.Errorf("session: got %+v, want %+v", got, want)
	}
	other := openOp("n", 1, 11*time.Second)
	s.want(fsmpb.Result_INVALID, other)
	if next := s.session("m"); next <= id {
		t.Errorf("next session: got %d, want more than %d", next, id)
	}
}

// Malformed session operations are refused with a reason, and leave nothing.
func TestMachine_OpenSession_Invalid(t *testing.T) {
	s := owned(t)
	for name, change := range map[string]func(*fsmpb.OpenSession){
		"NoNode":     func(o *fsmpb.OpenSession) { o.Node = "" },
		"ShortNonce": func(o *fsmpb.OpenSession) { o.Nonce = o.Nonce[1:] },
		"NoTTL":      func(o *fsmpb.OpenSession) { o.Ttl = 0 },
		"LongTTL":    func(o *fsmpb.OpenSession) { o.Ttl = int64(MaxTTL) + 1 },
	} {
		op := openOp("n", 1, time.Second)
		change(op.GetOpenSession())
		if res := s.want(fsmpb.Result_INVALID, op); res.Reason == "" {
			t.Errorf("%s: no reason", name)
		}
	}
	s.m.Sessions(func(x Session) bool { t.Errorf("got session %+v, want none", x); return true })
}

// Ending sessions frees everything that hung on them, and says which existed.
func TestMachine_EndSessions(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	s.do(lockOp(a, 1, "x"), lockOp(a, 2, "y"), lockOp(b, 1, "x"), lockOp(b, 2, "z"), lockOp(a, 3, "z"))
	res := s.want(fsmpb.Result_OK, endOp(a, 999, a))
	if diff := cmp.Diff([]bool{true, false, true}, res.Exists); diff != "" {
		t.Errorf("exists (-want +got):\n%s", diff)
	}
	if _, ok := s.m.Session(a); ok {
		t.Error("session a lives")
	}
	if _, ok := s.m.Result(a, 1); ok {
		t.Error("a result of session a is remembered")
	}
	x, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("x"))
	if len(x.Holders) != 1 || x.Holders[0].Session != b || len(x.Waiters) != 0 {
		t.Errorf("lock x: got %+v, want b's alone", x)
	}
	if _, ok := s.m.Lock(fsmpb.Lock_LOCK, []byte("y")); ok {
		t.Error("lock y is held")
	}
	if z, _ := s.m.Lock(fsmpb.Lock_LOCK, []byte("z")); len(z.Waiters) != 0 {
		t.Errorf("lock z: got waiters %+v, want none", z.Waiters)
	}
	s.want(fsmpb.Result_NO_SESSION, lockOp(a, 4, "y"))
	ended := slices.IndexFunc(s.m.Holds(a), func(LockState) bool { return true })
	if ended >= 0 {
		t.Error("session a holds something")
	}
}

// A session may end itself; nothing is remembered for it then.
func TestMachine_EndSessions_Itself(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.want(fsmpb.Result_OK, by(id, 1, 0, endOp(id)))
	s.want(fsmpb.Result_NO_SESSION, by(id, 1, 0, endOp(id)))
}

// All sessions of a batch end before anything is granted: what one of them held never goes to another of them.
func TestMachine_EndSessions_AllBeforeGrants(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	s.do(lockOp(a, 1, "x"), lockOp(b, 1, "x"), lockOp(c, 1, "x"), lockOp(b, 2, "w"), lockOp(a, 2, "w"), lockOp(c, 2, "w"))
	s.do(endOp(a, b))
	for _, e := range s.last.Events {
		if e.Kind == Granted && e.Session != c {
			t.Errorf("granted %q to session %d, want only to %d", e.Name, e.Session, c)
		}
	}
	if got := s.grants(); len(got) != 2 {
		t.Errorf("grants: got %v, want w and x to %d", got, c)
	}
}

// Only smaller incarnations of that node end.
func TestMachine_EndFormer(t *testing.T) {
	s := owned(t)
	open := func(node string, inc uint64) Token {
		return Token(s.want(fsmpb.Result_OK, openOp(node, inc, time.Second)).Token)
	}
	open("n", 1)
	open("n", 2)
	same, other := open("n", 3), open("m", 1)
	s.want(fsmpb.Result_OK, &fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: "n", Incarnation: 3}}})
	var got []Token
	s.m.Sessions(func(x Session) bool { got = append(got, x.ID); return true })
	if diff := cmp.Diff([]Token{same, other}, got); diff != "" {
		t.Errorf("living (-want +got):\n%s", diff)
	}
}

// Renew and Checkpoint say per session whether it exists; a dead one is not revived (case 26).
func TestMachine_Renew_Dead(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	s.do(endOp(a))
	before, _ := s.m.Session(b)
	if diff := cmp.Diff([]bool{false, true}, s.want(fsmpb.Result_OK, renewOp(a, b)).Exists); diff != "" {
		t.Errorf("renewed (-want +got):\n%s", diff)
	}
	if after, ok := s.m.Session(b); !ok || !after.Hot || after.Heard <= before.Heard {
		t.Errorf("renewed: got %+v after %+v, want it hot and heard later", after, before)
	}
	if after, ok := s.m.Session(a); ok {
		t.Errorf("renewing a dead session: got %+v, want none", after)
	}
	if diff := cmp.Diff([]bool{false}, s.want(fsmpb.Result_OK, checkpointOp(a, 1)).Exists); diff != "" {
		t.Errorf("checkpointed (-want +got):\n%s", diff)
	}
}

// A copy of an operation gets the first one's result and does nothing, until it is acknowledged; then it is refused.
func TestMachine_Apply_Copies(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	first := s.want(fsmpb.Result_OK, by(id, 1, 0, putOp("k", "v")))
	copied := s.want(fsmpb.Result_OK, by(id, 1, 0, putOp("k", "v")))
	if first.Revision != 1 || copied.Revision != 1 || s.m.Revision() != 1 {
		t.Errorf("revisions: got %d, copy %d, machine %d; want 1", first.Revision, copied.Revision, s.m.Revision())
	}
	s.do(by(id, 5, 0, putOp("k", "5")), by(id, 3, 0, putOp("k", "3")), by(id, 4, 3, touchOp()))
	for seq, want := range map[uint64]bool{1: false, 3: false, 4: true, 5: true} {
		if _, ok := s.m.Result(id, seq); ok != want {
			t.Errorf("result %d: got %v, want %v", seq, ok, want)
		}
	}
	s.want(fsmpb.Result_BELOW, by(id, 1, 0, putOp("k", "v")))
	s.want(fsmpb.Result_BELOW, by(id, 2, 0, putOp("k", "v")))
	if rec, err := s.m.Get([]byte("k")); err != nil || string(rec.Value) != "3" {
		t.Errorf("k: got %q, %v; want 3", rec.Value, err)
	}
	s.want(fsmpb.Result_INVALID, by(id, 6, 6, touchOp()))
	s.want(fsmpb.Result_INVALID, by(id, 0, 0, touchOp()))
	if x, _ := s.m.Session(id); x.Low != 3 {
		t.Errorf("low: got %d, want 3", x.Low)
	}
	s.want(fsmpb.Result_NO_SESSION, by(id+100, 1, 0, touchOp()))
}

// A session that never acknowledges is refused at some number of results, instead of filling every memory.
func TestMachine_Apply_TooManyResults(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	ops := make([]*fsmpb.Op, MaxResults)
	for i := range ops {
		ops[i] = by(id, uint64(i+1), 0, touchOp())
	}
	more := batchEntry(s.stamp, by(id, MaxResults+1, 0, touchOp()), by(id, MaxResults+1, 1, touchOp()))
	done, err := s.m.Apply([]Entry{{10, encode(t, batchEntry(s.stamp, ops...))}, {11, encode(t, more)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range done[0].Results {
		if r.Status != fsmpb.Result_OK {
			t.Fatalf("below the limit: got %v, want OK", r)
		}
	}
	if got := done[1].Results; got[0].Status != fsmpb.Result_INVALID || got[1].Status != fsmpb.Result_OK {
		t.Errorf("at the limit, and after an acknowledgement: got %v, want INVALID and OK", got)
	}
}

// One entry ends so many former sessions and says that there are more; asked for again, all are gone.
func TestMachine_EndFormer_Many(t *testing.T) {
	m, stamp, ids := crowd(t, 10*(maxFormer+50), own) // of ten nodes
	op := &fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: "0c6a1e8e-6a5f-4c39-9d0e-000000000003", Incarnation: 2}}}
	for _, want := range []struct {
		more bool
		left int
	}{{true, len(ids) - maxFormer}, {false, len(ids) - maxFormer - 50}, {false, len(ids) - maxFormer - 50}} {
		done, err := m.Apply([]Entry{{m.Applied() + 1, encode(t, batchEntry(stamp, op))}})
		if err != nil || done[0].Results[0].GetExists()[0] != want.more || m.st.order.len() != want.left {
			t.Fatalf("end former: got %+v, %v, %d left, want more %v and %d left", done, err, m.st.order.len(), want.more, want.left)
		}
	}
	checkMirror(t, m)
}
