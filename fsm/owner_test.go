package fsm

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A batch changes something only under the stamp of the current, unreleased claim.
func TestMachine_Apply_Stamps(t *testing.T) {
	s := owned(t)
	first := s.stamp
	s.do(putOp("k", "1"))
	refuse := func(when string, stamp Token) {
		t.Helper()
		before := hash(t, s.m)
		a := s.entry(batchEntry(stamp, putOp("k", "x"), touchOp()))
		if !errors.Is(a.Err, ErrStale) || a.Results != nil || a.Events != nil {
			t.Errorf("%s: got %+v, want ErrStale alone", when, a)
		}
		if hash(t, s.m) != before {
			t.Errorf("%s: the state changed", when)
		}
	}
	refuse("no stamp", 0)
	refuse("a stamp to come", first+1)
	s.claim("b", 2)
	refuse("the former owner's stamp", first)
	s.do(putOp("k", "2"))
	s.do(releaseOp(0, 0))
	refuse("after the release", s.stamp)
	if c := s.m.Claim(); !c.Released || c.Node != "b" {
		t.Errorf("claim after release: got %+v, want b's, released", c)
	}
	s.claim("a", 2+1)
	s.do(putOp("k", "3"))
}

// What follows a Release in its own batch is refused like any other batch, and leaves no trace.
func TestMachine_Apply_AfterReleaseInOneBatch(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	res := s.do(releaseOp(id, time.Second), by(id, 1, 0, putOp("k", "v")))
	if res[0].Status != fsmpb.Result_OK || res[1].Status != fsmpb.Result_FENCED {
		t.Errorf("got %v, want OK and FENCED", res)
	}
	if _, err := s.m.Get([]byte("k")); !errors.Is(err, ErrNotFound) {
		t.Errorf("get: got %v, want ErrNotFound", err)
	}
	if r, ok := s.m.Result(id, 1); ok {
		t.Errorf("result: got %v, want none", r)
	}
}

// A refused claim changes nothing and tells whom it lost against; an accepted one mints a token unless it keeps it.
func TestMachine_Apply_Claims(t *testing.T) {
	s := owned(t)
	first := s.m.Claim()
	before := hash(t, s.m)
	lost := s.entry(claimEntry(&fsmpb.Claim{Node: "b", Incarnation: 1, Term: 1, Lease: 1, Replaces: uint64(first.Token)}))
	if lost.Err != nil || lost.Claim.Accepted || lost.Claim.Current != first || lost.Events != nil {
		t.Errorf("claim in the same term: got %+v, want refused for %+v", lost, first)
	}
	if hash(t, s.m) != before {
		t.Error("a refused claim changed the state")
	}
	kept := s.entry(claimEntry(&fsmpb.Claim{Node: "a", Incarnation: 1, Term: 4, Lease: 5, Replaces: uint64(first.Token), Keep: true}))
	want := Claim{Token: first.Token, Node: "a", Incarnation: 1, Term: 4, Lease: 5}
	if !kept.Claim.Accepted || kept.Claim.Current != want || s.m.Claim() != want {
		t.Errorf("kept: got %+v, want %+v", kept.Claim, want)
	}
	next := s.claim("b", 5).Claim.Current
	if next.Token != first.Token+1 || next.Node != "b" {
		t.Errorf("next: got %+v, want token %d of b", next, first.Token+1)
	}
	if diff := cmp.Diff([]Event{{Kind: Claimed, Token: next.Token}}, s.last.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Claims out of bounds are refused as malformed on every replica alike.
func TestMachine_Apply_InvalidClaims(t *testing.T) {
	for name, c := range map[string]*fsmpb.Claim{
		"NoNode":       {Term: 1, Lease: 1},
		"LongNode":     {Node: string(make([]byte, MaxNode+1)), Term: 1, Lease: 1},
		"NoLease":      {Node: "a", Term: 1},
		"EndlessLease": {Node: "a", Term: 1, Lease: int64(MaxLease) + 1},
		"NegativeWait": {Node: "a", Term: 1, Lease: 1, Waited: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShard(t, Options{})
			if a := s.entry(claimEntry(c)); !errors.Is(a.Err, ErrInvalid) || a.Claim != nil {
				t.Errorf("%v: got %+v, want ErrInvalid", c, a)
			}
			if c := s.m.Claim(); c != (Claim{}) {
				t.Errorf("claim: got %+v, want none", c)
			}
		})
	}
}

// A session is hot under the owner that renewed it in the log; a claim without keep makes all cold, and adds the
// wait only to those that were cold before the claim that it replaces (case 3's kind).
func TestMachine_Apply_SilenceOverClaims(t *testing.T) {
	s := owned(t)
	hot, cold, dead := s.session("hot"), s.session("cold"), s.session("dead")
	s.do(checkpointOp(cold, 3*time.Second), checkpointOp(dead, 9*time.Second))
	check := func(when string, id Token, hot bool, silence time.Duration) {
		t.Helper()
		got, ok := s.m.Session(id)
		if !ok || got.Hot != hot || got.Silence != silence {
			t.Errorf("%s: session %d: got %+v, want hot %v, silence %v", when, id, got, hot, silence)
		}
	}
	check("before", hot, true, 0)
	check("before", cold, false, 3*time.Second)
	last := s.m.Claim()
	s.entry(claimEntry(&fsmpb.Claim{Node: "a", Incarnation: 1, Term: 2, Lease: 1, Replaces: uint64(last.Token), Keep: true, Waited: 5e9}))
	check("kept", hot, true, 0)
	check("kept", cold, false, 3*time.Second)
	s.entry(claimEntry(&fsmpb.Claim{Node: "b", Incarnation: 1, Term: 3, Lease: 1, Replaces: uint64(last.Token), Waited: 5e9}))
	s.stamp = s.m.Claim().Token
	check("claimed", hot, false, 0)
	check("claimed", cold, false, 3*time.Second) // may have been measured while the claimer waited
	last = s.m.Claim()
	s.entry(claimEntry(&fsmpb.Claim{Node: "a", Incarnation: 1, Term: 4, Lease: 1, Replaces: uint64(last.Token), Waited: 5e9}))
	s.stamp = s.m.Claim().Token
	check("claimed again", hot, false, 5*time.Second)
	check("claimed again", cold, false, 8*time.Second)
	check("claimed again", dead, false, SessionLimit(10*time.Second))
	s.do(renewOp(cold))
	check("renewed", cold, true, 0)
	s.do(releaseOp(cold, 2*time.Second))
	check("released", cold, false, 2*time.Second)
}

// A session that is hot when its owner releases cannot be renewed in memory any more.
func TestMachine_Session_NotHotAfterRelease(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.do(releaseOp(0, 0))
	if got, ok := s.m.Session(id); !ok || got.Hot {
		t.Errorf("session after release: got %+v, want it cold", got)
	}
}

// The version rises and never falls.
func TestMachine_Apply_Raise(t *testing.T) {
	s := newShard(t, Options{MaxVersion: 3})
	s.claim("a", 1)
	for _, c := range []struct{ to, want uint32 }{{0, 1}, {1, 1}, {3, 3}, {2, 3}} {
		s.want(fsmpb.Result_OK, raiseOp(c.to))
		if got := s.m.Version(); got != c.want {
			t.Errorf("raised to %d: got version %d, want %d", c.to, got, c.want)
		}
	}
}

// A checkpoint that was measured before a renewal changes nothing once the renewal is in the log, in whatever order they come.
func TestMachine_Apply_OvertakenCheckpoint(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	before, _ := s.m.Session(id)
	late := checkpointOp(id, 5*time.Second)
	late.GetCheckpoint().Sessions[0].Heard = uint64(before.Heard)
	s.do(renewOp(id))
	s.do(late)
	if got, ok := s.m.Session(id); !ok || !got.Hot || got.Silence != 0 {
		t.Errorf("after a renewal and an older checkpoint: got %+v, want hot", got)
	}
}
