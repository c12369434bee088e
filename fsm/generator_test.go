package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// holdOp is a random operation on what is held in other ways than a plain mutex is.
func (g *generator) holdOp(id Token, seq uint64) *fsmpb.Op {
	kind := fsmpb.Lock_Kind(g.r.IntN(3))
	name, token := g.grantOf(kind)
	switch g.r.IntN(14) {
	case 0, 1, 2:
		return g.askOp(id, seq)
	case 3:
		return unlockOf(kind, name, token)
	case 4:
		return permitsOp(g.pick("s", "t", "x"), 1+g.r.Uint32N(4))
	case 5:
		return valueOp(kind, name, token, g.pick("v", "w"))
	case 6:
		node := fmt.Sprint("n", g.r.Uint64N(g.opened+1))
		if l, _ := g.m.Lock(kind, []byte(name)); len(l.Waiters) > 0 {
			node = l.Waiters[g.r.IntN(len(l.Waiters))].Node
		}
		return transferOp(kind, name, token, node)
	case 7:
		return forceOp(kind, name, token)
	case 8:
		return revokeOp(kind, name)
	case 9:
		return startedOp(kind, name, token)
	case 10, 11:
		if graces := g.m.Graces(); len(graces) > 0 {
			x := graces[g.r.IntN(len(graces))]
			return graceOp(x.Kind, x.Name, uint64(x.Token))
		}
		return graceOp(kind, name, token)
	case 12:
		if g.r.IntN(3) == 0 {
			return passOp(g.m.Passed(), 1+time.Duration(g.r.Int64N(int64(MaxPass))))
		}
		if g.r.IntN(2) > 0 {
			return forgetOp(g.pick("x", "y"), 0)
		}
	}
	name, token = g.grantOf(fsmpb.Lock_JOB)
	return doneOp(0, 0, name, token, string(make([]byte, g.r.IntN(2*keptValue))), time.Duration(g.r.Int64N(2)), 7)
}

// askOp asks for a lock of a random kind, mode and number of names.
func (g *generator) askOp(id Token, seq uint64) (op *fsmpb.Op) {
	defer func() {
		k := op.GetLock()
		k.Try = g.r.IntN(4) == 0
		if g.r.IntN(3) == 0 {
			k.Grace = 1 + g.r.Int64N(9)
		}
		if g.r.IntN(3) == 0 {
			k.MaxHold = 1 + g.r.Int64N(9)
		}
	}()
	switch g.r.IntN(7) {
	case 0:
		return shareOp(id, seq, g.pick("x", "y", "z"))
	case 1:
		return permitOp(id, seq, g.pick("s", "t", "x"), 2)
	case 2:
		return lockOf(fsmpb.Lock_ELECTION, id, seq, g.pick("x", "y"))
	case 3, 4:
		return lockOf(fsmpb.Lock_JOB, id, seq, g.pick("x", "y"))
	}
	names := []string{"w", "x", "y", "z"}
	g.r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	return allOp(id, seq, names[:2+g.r.IntN(2)]...)
}

// grantOf is a name of that kind, and the token of one of its holders, if it has one, or nearly.
func (g *generator) grantOf(kind fsmpb.Lock_Kind) (name string, token uint64) {
	locks := g.m.Locks(kind, "", "", 0)
	if len(locks) == 0 {
		return "x", g.r.Uint64N(9)
	}
	l := locks[g.r.IntN(len(locks))]
	for _, k := range locks {
		if len(k.Waiters) > 0 && g.r.IntN(2) == 0 {
			l = k // what is waited for is worth more
		}
	}
	if len(l.Holders) == 0 {
		return l.Name, g.r.Uint64N(9)
	}
	return l.Name, uint64(l.Holders[g.r.IntN(len(l.Holders))].Token) - g.r.Uint64N(5)/4
}

// The random logs that other tests replay hit everything: each kind of event, reason and status at least once.
func TestGenerator_HitsEverything(t *testing.T) {
	seen := map[any]int{}
	for seed := range uint64(6) {
		_, _, applied := generate(t, seed, 300)
		for _, a := range applied {
			for _, e := range a.Events {
				seen[e.Kind]++
				seen[e.Reason]++
			}
			for _, r := range a.Results {
				seen[r.Status]++
				seen[r.Succeeded && len(r.Answers) > 1] = 1
				seen[fmt.Sprint("deleted ", r.Deleted > 1)]++
				for _, a := range r.Answers {
					seen[fmt.Sprint("answer ", a.Found, a.Deleted, a.Number != 0)]++
				}
			}
		}
	}
	for k := Claimed; k <= JobCompleted; k++ {
		if k != Raised && seen[k] == 0 {
			t.Errorf("no event of kind %d", k)
		}
	}
	for k := Unlocked; k <= Cancelled; k++ {
		if seen[k] == 0 {
			t.Errorf("no grant freed for reason %d", k)
		}
	}
	for _, k := range []any{true, "deleted true", "answer true false false", "answer false true false", "answer false false true"} {
		if seen[k] == 0 {
			t.Errorf("no result with %v", k)
		}
	}
	for k := fsmpb.Result_OK; k <= fsmpb.Result_NOT_FOUND; k++ {
		if seen[k] == 0 {
			t.Errorf("no result %v", k)
		}
	}
}
