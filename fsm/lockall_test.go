package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Several names are granted all at once or not at all, under one token, and freed by any of them.
func TestMachine_Lock_All(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	x := s.want(fsmpb.Result_OK, lockOp(a, 1, "x")).Token
	try := allOp(b, 1, "w", "x")
	try.GetLock().Try = true
	s.want(fsmpb.Result_HELD, try)
	s.wantState(fsmpb.Lock_LOCK, "w", "idle")
	s.want(fsmpb.Result_QUEUED, allOp(b, 2, "w", "x", "y"))
	s.wantState(fsmpb.Lock_LOCK, "w", "held waits b2") // free, but reserved for who came first
	s.want(fsmpb.Result_QUEUED, lockOp(c, 1, "w"))
	s.want(fsmpb.Result_HELD, tryOp(c, 2, "y"))
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "x", x))
	tok := s.token(b, 2)
	for _, name := range []string{"x", "y"} {
		s.wantState(fsmpb.Lock_LOCK, name, "held b2 waits")
	}
	s.wantState(fsmpb.Lock_LOCK, "w", "held b2 waits c1")
	s.want(fsmpb.Result_OK, guarded(touchOp(), fsmpb.Guard_LOCK, "y", Token(tok)))
	if got := s.m.Holds(b); len(got) != 1 || cmp.Diff([]string{"w", "x", "y"}, got[0].Holders[0].Names) != "" {
		t.Errorf("holds: got %+v, want one of w, x, y", got)
	}
	s.want(fsmpb.Result_OK, unlockOp(0, 0, "y", tok))
	s.want(fsmpb.Result_NOT_HELD, unlockOp(0, 0, "x", tok))
	s.wantState(fsmpb.Lock_LOCK, "w", "held c1 waits")
	s.wantState(fsmpb.Lock_LOCK, "x", "idle")
}

// A waiter for several names that gives up, or whose session ends, lets through who waited behind it, in each queue.
func TestMachine_Lock_AllGivesUp(t *testing.T) {
	for name, giveUp := range map[string]func(b Token) *fsmpb.Op{
		"Cancels": func(b Token) *fsmpb.Op { return cancelOp(b, 2, 1) },
		"Dies":    func(b Token) *fsmpb.Op { return endOp(b) },
	} {
		t.Run(name, func(t *testing.T) {
			s := owned(t)
			a, b, c := s.session("a"), s.session("b"), s.session("c")
			s.want(fsmpb.Result_OK, lockOp(a, 1, "x"))
			s.want(fsmpb.Result_QUEUED, allOp(b, 1, "x", "y", "z"))
			s.want(fsmpb.Result_QUEUED, allOp(c, 1, "y", "z"))
			s.do(giveUp(b))
			s.wantState(fsmpb.Lock_LOCK, "x", "held a1 waits")
			s.wantState(fsmpb.Lock_LOCK, "z", "held c1 waits")
		})
	}
}

// Whatever names are asked for together, in whatever order, everybody is granted in the end if holders let go: there is
// no deadlock. And nobody is granted a name before one that asked for it earlier and has not given up.
func TestMachine_Lock_AllNeverDeadlocks(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 30))
		s := owned(t)
		id := s.session("n")
		granted, order := map[uint64]bool{}, map[string][]uint64{} // by name, who asked
		const asks = 40
		for seq := uint64(1); seq <= asks; seq++ {
			names := []string{"a", "b", "c", "d", "e"}
			r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
			names = names[:1+r.IntN(4)]
			for _, n := range names {
				order[n] = append(order[n], seq)
			}
			s.do(allOp(id, seq, names...))
			note(t, s, granted, order)
			if r.IntN(3) == 0 {
				freeOne(s, r)
				note(t, s, granted, order)
			}
		}
		for freeOne(s, r) {
			note(t, s, granted, order)
		}
		if len(granted) != asks || len(s.m.st.locks) != 0 {
			t.Errorf("seed %d: %d of %d were granted, %d names are left", seed, len(granted), asks, len(s.m.st.locks))
		}
	}
}

// note records the grants of the last entry, each of which must be the first in all its queues.
func note(t *testing.T, s *shard, granted map[uint64]bool, order map[string][]uint64) {
	t.Helper()
	for _, e := range s.last.Events {
		if e.Kind != Granted {
			continue
		}
		granted[e.Seq] = true
		if q := order[string(e.Name)]; q[0] != e.Seq {
			t.Errorf("%s granted to %d before %d", e.Name, e.Seq, q[0])
		}
		order[string(e.Name)] = order[string(e.Name)][1:]
	}
}

// freeOne releases a random grant. It is false if there is none.
func freeOne(s *shard, r *rand.Rand) bool {
	var held []LockState
	for _, l := range s.m.Locks(fsmpb.Lock_LOCK, "", "", 0) {
		if len(l.Holders) > 0 {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return false
	}
	l := held[r.IntN(len(held))]
	s.want(fsmpb.Result_OK, unlockOp(0, 0, l.Name, uint64(l.Holders[0].Token)))
	return true
}

// An entry that ends sessions first takes everything from all of them, also what they hold of several names, and only
// then grants.
func TestMachine_EndSessions_AllNames(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	s.want(fsmpb.Result_OK, allOp(a, 1, "x", "y"))
	s.want(fsmpb.Result_QUEUED, allOp(b, 1, "y", "z"))
	s.want(fsmpb.Result_QUEUED, allOp(c, 1, "z", "x"))
	s.do(endOp(b, a))
	want := []string{fmt.Sprintf("%d/1 %d z", c, s.token(c, 1)), fmt.Sprintf("%d/1 %d x", c, s.token(c, 1))}
	if diff := cmp.Diff(want, s.grants()); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	s.wantState(fsmpb.Lock_LOCK, "y", "idle")
}
