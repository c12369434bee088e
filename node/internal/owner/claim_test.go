package owner

import (
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// A wait for another's lease is longer by the margin of two clocks' rates (DESIGN.md 5, claim step 2).
func TestStretch(t *testing.T) {
	for _, c := range []struct{ d, want time.Duration }{
		{0, 0},
		{99, 100},
		{100, 102},
		{990 * time.Millisecond, time.Second},
		{99 * time.Minute, 100 * time.Minute},
	} {
		if got := Stretch(c.d); got != c.want {
			t.Errorf("Stretch(%d): got %d, want %d", c.d, got, c.want)
		}
	}
}

// A read proves that this node led only if what is published says so before and after, in one term, and the group's
// members were the same throughout (claim step 1).
func TestConfirmed(t *testing.T) {
	led := View{Self: true, Term: 4, Change: 9}
	for _, c := range []struct {
		name          string
		before, after View
		want          bool
	}{
		{"Led", led, led, true},
		{"FollowedBefore", View{Term: 4, Change: 9}, led, false},
		{"FollowedAfter", led, View{Term: 4, Change: 9}, false},
		{"FollowedThroughout", View{Term: 4}, View{Term: 4}, false},
		{"ElectedAgainMeanwhile", led, View{Self: true, Term: 5, Change: 9}, false},
		{"MembersChangedMeanwhile", led, View{Self: true, Term: 4, Change: 10}, false},
	} {
		if got := Confirmed(c.before, c.after); got != c.want {
			t.Errorf("%s: Confirmed(%+v, %+v): got %v, want %v", c.name, c.before, c.after, got, c.want)
		}
	}
}

// Leading means to be published as the leader, in that very term.
func TestLeads(t *testing.T) {
	for _, c := range []struct {
		v    View
		term uint64
		want bool
	}{
		{View{Self: true, Term: 4}, 4, true},
		{View{Self: true, Term: 5}, 4, false},
		{View{Self: true, Term: 3}, 4, false},
		{View{Term: 4}, 4, false},
	} {
		if got := Leads(c.v, c.term); got != c.want {
			t.Errorf("Leads(%+v, %d): got %v, want %v", c.v, c.term, got, c.want)
		}
	}
}

// Another's claim is waited for by the lease written in it, stretched. There is no wait when there is no claim, when it was
// released, or when it is this process's own: kept while its lease is good, replaced by a new token when not (claim step 2).
func TestPlanClaim(t *testing.T) {
	const lease, wait = 297 * time.Millisecond, 300 * time.Millisecond
	me := ID{Node: "a", Incarnation: 2}
	claim := func(node string, incarnation uint64) fsm.Claim {
		return fsm.Claim{Token: 7, Node: node, Incarnation: incarnation, Term: 3, Lease: lease}
	}
	released := func(c fsm.Claim) fsm.Claim {
		c.Released = true
		return c
	}
	for _, c := range []struct {
		name       string
		last       fsm.Claim
		held       fsm.Token
		formerDead bool
		want       Plan
	}{
		{"FirstOfAll", fsm.Claim{}, 0, false, Plan{}},
		{"Others", claim("b", 2), 0, false, Plan{Replaces: 7, Wait: wait}},
		{"OthersWhileHoldingAnOlderToken", claim("b", 2), 6, false, Plan{Replaces: 7, Wait: wait}},
		{"OthersReleased", released(claim("b", 2)), 0, false, Plan{Replaces: 7}},
		{"OursGood", claim("a", 2), 7, false, Plan{Replaces: 7, Keep: true}},
		{"OursLapsed", claim("a", 2), 0, false, Plan{Replaces: 7}},
		{"OursLapsedHoldingAnOlderToken", claim("a", 2), 6, false, Plan{Replaces: 7}},
		{"OursReleased", released(claim("a", 2)), 7, false, Plan{Replaces: 7}},
		{"FormerIncarnation", claim("a", 1), 0, false, Plan{Replaces: 7, Wait: wait}},
		{"FormerIncarnationKnownDead", claim("a", 1), 0, true, Plan{Replaces: 7}},
		{"LaterIncarnation", claim("a", 3), 0, true, Plan{Replaces: 7, Wait: wait}},
		{"OthersWhenOurFormerIsDead", claim("b", 1), 0, true, Plan{Replaces: 7, Wait: wait}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := PlanClaim(c.last, me, c.held, c.formerDead); got != c.want {
				t.Errorf("PlanClaim(%+v, %+v, %d, %v): got %+v, want %+v", c.last, me, c.held, c.formerDead, got, c.want)
			}
		})
	}
}

// The wait counts from the start of the confirmation, to the instant (claim step 2).
func TestMayClaim(t *testing.T) {
	p := Plan{Wait: 303}
	for _, c := range []struct {
		p    Plan
		now  time.Duration
		want bool
	}{
		{p, 1000, false},
		{p, 1302, false},
		{p, 1303, true},
		{p, 5000, true},
		{Plan{}, 1000, true},
	} {
		if got := MayClaim(c.p, 1000, c.now); got != c.want {
			t.Errorf("MayClaim(%+v, 1000, %d): got %v, want %v", c.p, c.now, got, c.want)
		}
	}
}

// Only the attempt that was itself accepted makes an owner, and only one that leads the claim's term still (claim step 4).
func TestOwns(t *testing.T) {
	leads := View{Self: true, Term: 4}
	for _, c := range []struct {
		name     string
		applied  uint64
		accepted bool
		after    View
		want     bool
	}{
		{"Accepted", 8, true, leads, true},
		{"Refused", 8, false, leads, false},
		{"EarlierAttempt", 7, true, leads, false},
		{"LaterAttempt", 9, true, leads, false},
		{"Deposed", 8, true, View{Term: 5}, false},
		{"ElectedAgain", 8, true, View{Self: true, Term: 5}, false},
	} {
		if got := Owns(c.applied, 8, c.accepted, c.after, 4); got != c.want {
			t.Errorf("%s: Owns(%d, 8, %v, %+v, 4): got %v, want %v", c.name, c.applied, c.accepted, c.after, got, c.want)
		}
	}
}

// A confirmation extends only the token whose accepted claim has its term (lease).
func TestExtends(t *testing.T) {
	for _, c := range []struct {
		claim, term uint64
		want        bool
	}{{4, 4, true}, {4, 5, false}, {5, 4, false}} {
		if got := Extends(c.claim, c.term); got != c.want {
			t.Errorf("Extends(%d, %d): got %v, want %v", c.claim, c.term, got, c.want)
		}
	}
}
