package fsm

import (
	"math"
	"testing"
	"time"
)

// A claim is accepted only over the very claim that the claimer saw, in a newer term or by the same process in the
// same one, and a token is kept only by the process that has it, unreleased.
func TestClaim_Accepts(t *testing.T) {
	last := Claim{Token: 5, Node: "a", Incarnation: 2, Term: 7, Lease: time.Second}
	released := last
	released.Released = true
	for _, c := range []struct {
		name string
		last Claim
		next ClaimRequest
		want bool
	}{
		{"FirstOfAll", Claim{}, ClaimRequest{Node: "a", Incarnation: 1, Term: 1}, true},
		{"FirstOfAllReplacingSomething", Claim{}, ClaimRequest{Node: "a", Incarnation: 1, Term: 1, Replaces: 5}, false},
		{"FirstOfAllKeeping", Claim{}, ClaimRequest{Term: 1, Keep: true}, false},
		{"OtherNodeNewerTerm", last, ClaimRequest{Node: "b", Incarnation: 1, Term: 8, Replaces: 5}, true},
		{"OtherNodeSameTerm", last, ClaimRequest{Node: "b", Incarnation: 2, Term: 7, Replaces: 5}, false},
		{"OtherNodeOlderTerm", last, ClaimRequest{Node: "b", Incarnation: 1, Term: 6, Replaces: 5}, false},
		{"ReplacingAnOlderClaim", last, ClaimRequest{Node: "b", Incarnation: 1, Term: 8, Replaces: 4}, false},
		{"ReplacingNone", last, ClaimRequest{Node: "b", Incarnation: 1, Term: 8}, false},
		{"SameProcessSameTerm", last, ClaimRequest{Node: "a", Incarnation: 2, Term: 7, Replaces: 5}, true},
		{"SameProcessOlderTerm", last, ClaimRequest{Node: "a", Incarnation: 2, Term: 6, Replaces: 5}, false},
		{"NextIncarnationSameTerm", last, ClaimRequest{Node: "a", Incarnation: 3, Term: 7, Replaces: 5}, false},
		{"NextIncarnationNewerTerm", last, ClaimRequest{Node: "a", Incarnation: 3, Term: 8, Replaces: 5}, true},
		{"KeepSameProcess", last, ClaimRequest{Node: "a", Incarnation: 2, Term: 8, Replaces: 5, Keep: true}, true},
		{"KeepSameProcessSameTerm", last, ClaimRequest{Node: "a", Incarnation: 2, Term: 7, Replaces: 5, Keep: true}, true},
		{"KeepOtherNode", last, ClaimRequest{Node: "b", Incarnation: 2, Term: 8, Replaces: 5, Keep: true}, false},
		{"KeepNextIncarnation", last, ClaimRequest{Node: "a", Incarnation: 3, Term: 8, Replaces: 5, Keep: true}, false},
		{"KeepReleased", released, ClaimRequest{Node: "a", Incarnation: 2, Term: 8, Replaces: 5, Keep: true}, false},
		{"SameProcessReleased", released, ClaimRequest{Node: "a", Incarnation: 2, Term: 7, Replaces: 5}, true},
		{"OtherNodeReleasedSameTerm", released, ClaimRequest{Node: "b", Incarnation: 1, Term: 7, Replaces: 5}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.last.Accepts(c.next); got != c.want {
				t.Errorf("%+v accepts %+v: got %v, want %v", c.last, c.next, got, c.want)
			}
		})
	}
}

// A claim that keeps its token changes only term and lease; any other is new from top to bottom.
func TestClaim_After(t *testing.T) {
	last := Claim{Token: 5, Node: "a", Incarnation: 2, Term: 7, Lease: time.Second}
	keep := last.After(ClaimRequest{Node: "a", Incarnation: 2, Term: 9, Lease: 2 * time.Second, Keep: true}, 6)
	if want := (Claim{Token: 5, Node: "a", Incarnation: 2, Term: 9, Lease: 2 * time.Second}); keep != want {
		t.Errorf("kept: got %+v, want %+v", keep, want)
	}
	last.Released = true
	next := last.After(ClaimRequest{Node: "b", Incarnation: 1, Term: 9, Lease: 3 * time.Second}, 6)
	if want := (Claim{Token: 6, Node: "b", Incarnation: 1, Term: 9, Lease: 3 * time.Second}); next != want {
		t.Errorf("new: got %+v, want %+v", next, want)
	}
}

// A stamp is accepted only if it is the current claim's, and only until the release.
func TestClaim_AcceptsStamp(t *testing.T) {
	for _, c := range []struct {
		name  string
		claim Claim
		stamp Token
		want  bool
	}{
		{"Current", Claim{Token: 5}, 5, true},
		{"Older", Claim{Token: 5}, 4, false},
		{"Newer", Claim{Token: 5}, 6, false},
		{"Released", Claim{Token: 5, Released: true}, 5, false},
		{"NoneWhenThereIsNoClaim", Claim{}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.claim.AcceptsStamp(c.stamp); got != c.want {
				t.Errorf("%+v accepts stamp %d: got %v, want %v", c.claim, c.stamp, got, c.want)
			}
		})
	}
}

// A hot session's silence is unknown to the next owner; a cold one's grows by the wait, up to the limit (case 3's
// kind: failovers do not keep a dead session alive, nor do they end a live one early).
func TestSilenceAfterClaim(t *testing.T) {
	const ttl = 100 * time.Second
	limit := SessionLimit(ttl)
	for _, c := range []struct {
		name                 string
		hot                  bool
		silence, waited, ttl time.Duration
		want                 time.Duration
	}{
		{"Hot", true, 0, 30 * time.Second, ttl, 0},
		{"HotWithLeftover", true, 7, 30 * time.Second, ttl, 0},
		{"Cold", false, 20 * time.Second, 30 * time.Second, ttl, 50 * time.Second},
		{"ColdUpToTheLimit", false, 80 * time.Second, 30 * time.Second, ttl, limit},
		{"ColdBeyondTheLimit", false, 300 * time.Second, 1, ttl, limit},
		{"NoOverflow", false, math.MaxInt64, math.MaxInt64, ttl, limit},
		{"NegativeWait", false, 20 * time.Second, -1, ttl, 20 * time.Second},
		{"NegativeSilence", false, -20 * time.Second, 1, ttl, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SilenceAfterClaim(c.hot, c.silence, c.waited, c.ttl); got != c.want {
				t.Errorf("SilenceAfterClaim(%v, %v, %v, %v): got %v, want %v", c.hot, c.silence, c.waited, c.ttl, got, c.want)
			}
		})
	}
}

// The limit outlasts the TTL on a clock that runs at 0.99 of the owner's rate, is rounded up, and never overflows.
func TestSessionLimit(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0: 0, -5: 0, 1: 2, 99: 100, 100: 102, 101: 103, 198: 200, 9900 * time.Millisecond: 10 * time.Second, 10 * time.Second: 10*time.Second + 101010102,
		math.MaxInt64: math.MaxInt64, math.MaxInt64 - 1: math.MaxInt64,
	} {
		if got := SessionLimit(ttl); got != want {
			t.Errorf("SessionLimit(%d): got %d, want %d", ttl, got, want)
		}
	}
}

// A session is hot only under the token it was renewed under; checkpoints and claims make it cold. A checkpoint that the log
// knows better than is refused, and a claim adds no wait to what was recorded under the claim it replaces.
func TestLife(t *testing.T) {
	const ttl = 100 * time.Second
	limit := SessionLimit(ttl)
	hot := Life{Heard: 3, Silence: 3}.Renewed(6)
	checkpoint := func(heard Token, silence time.Duration) Life {
		l, _ := hot.Checkpointed(heard, 7, silence, ttl)
		return l
	}
	for _, c := range []struct {
		name string
		got  Life
		want Life
	}{
		{"Renew", hot, Life{Heard: 6}},
		{"Checkpoint", checkpoint(6, 40*time.Second), Life{Heard: 7, Silence: 40 * time.Second}},
		{"CheckpointOvertaken", checkpoint(5, 40*time.Second), hot},
		{"CheckpointBeyondTheLimit", checkpoint(6, 400*time.Second), Life{Heard: 7, Silence: limit}},
		{"CheckpointNegative", checkpoint(6, -1), Life{Heard: 7}},
		{"ClaimAfterHot", hot.Claimed(5, 9, ttl), hot},
		{"ClaimAfterHotUnderAnother", hot.Claimed(8, 9, ttl), Life{Heard: 6, Silence: 9}},
		{"ClaimAfterCold", Life{Heard: 4, Silence: 40}.Claimed(5, 9, ttl), Life{Heard: 4, Silence: 49}},
		{"ClaimAfterColdUnderTheLast", Life{Heard: 6, Silence: 40}.Claimed(5, 9, ttl), Life{Heard: 6, Silence: 40}},
		{"ClaimBeyondTheLimit", Life{Heard: 4, Silence: 1}.Claimed(5, 2*ttl, ttl), Life{Heard: 4, Silence: limit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got %+v, want %+v", c.got, c.want)
			}
		})
	}
	if hot.IsHot(7) || !hot.IsHot(5) || hot.IsHot(0) || (Life{Heard: 6, Silence: 1}).IsHot(5) {
		t.Errorf("hot under 7, 5, none, cold under 5: got %v %v %v %v, want false true false false",
			hot.IsHot(7), hot.IsHot(5), hot.IsHot(0), Life{Heard: 6, Silence: 1}.IsHot(5))
	}
}

// The rules are called millions of times by a model checker: they do not allocate.
func TestRules_Allocations(t *testing.T) {
	last := Claim{Token: 5, Node: "a", Incarnation: 2, Term: 7, Lease: time.Second}
	next := ClaimRequest{Node: "b", Incarnation: 1, Term: 8, Replaces: 5}
	if n := testing.AllocsPerRun(100, func() {
		if !last.Accepts(next) || !last.After(next, 6).AcceptsStamp(6) || (Life{Silence: 1}).Claimed(5, 1, 100).Silence != 2 {
			t.Error("unexpected outcome")
		}
	}); n != 0 {
		t.Errorf("allocations: got %v, want 0", n)
	}
}

// An era fits the 11 bits above the counter, and a token of any era fits a signed column.
func TestToken_Era(t *testing.T) {
	for _, era := range []uint64{0, 1, MaxEra} {
		tok := FirstToken(era) + 1
		if tok.Era() != era || int64(tok) < 0 {
			t.Errorf("token %d of era %d: got era %d", tok, era, tok.Era())
		}
	}
	if FirstToken(1) <= FirstToken(0)+1<<EraBits-1 {
		t.Error("an era's tokens overlap the next one's")
	}
}
