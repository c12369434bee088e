package owner

import (
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// Stretch is a wait that outlasts d on another machine's clock, which may run at 0.99 of this one's rate: every wait for another's
// lease or session is longer by that.
func Stretch(d time.Duration) time.Duration { return fsm.Outlast(d) }

// A View is what the local Raft node publishes of a group at one instant.
type View struct {
	Self   bool   // the published leader is this node
	Term   uint64 // the published term
	Change uint64 // the group's config-change id
}

// Confirmed says whether a completed linearizable read, with a view taken before it was asked for and one taken after
// it was applied here, proves that this node led in that term at some instant in between. The read alone proves nothing,
// since a follower's is forwarded and succeeds too. A membership change in between spoils the proof: with five or more
// replicas the acknowledgement of a removed voter may have been counted.
func Confirmed(before, after View) bool {
	return before.Self && after.Self && before.Term == after.Term && before.Change == after.Change
}

// Leads says whether v still shows this node as leader of term.
func Leads(v View, term uint64) bool { return v.Self && v.Term == term }

// An ID tells a process apart: a node and one of its starts.
type ID struct {
	Node        string
	Incarnation uint64
}

// A Plan is how a confirmed leader goes about its claim.
type Plan struct {
	Replaces fsm.Token     // the last claim; the new one is refused if it is no longer the last
	Keep     bool          // keep the token: the last claim is ours and its lease never lapsed
	Wait     time.Duration // counted from the start of the confirmation
}

// PlanClaim decides how the confirmed leader me replaces the last claim, which it read after the confirmation. held is the
// token that this process believes in now with a good lease, or 0. Another's unreleased claim is waited for by the lease
// that is written in it, not by our own setting: nodes may be configured differently. formerDead says that me's former
// incarnations are known to have ended: only in a group of one replica, on the same boot of the same machine.
func PlanClaim(last fsm.Claim, me ID, held fsm.Token, formerDead bool) Plan {
	p := Plan{Replaces: last.Token}
	ours := last.Node == me.Node && last.Incarnation == me.Incarnation
	former := last.Node == me.Node && last.Incarnation < me.Incarnation
	switch {
	case last.Token == 0 || last.Released:
	case ours && held == last.Token:
		p.Keep = true
	case ours:
		// Lapsed, and an ended token is never revived: a new token excludes the old one without a wait.
	case former && formerDead:
	default:
		p.Wait = Stretch(last.Lease)
	}
	return p
}

// MayClaim says whether a claim planned after a confirmation begun at t0 may be proposed now.
func MayClaim(p Plan, t0, now time.Duration) bool { return now >= t0+p.Wait }

// Owns says whether an applied claim makes its proposer the owner: it was this very attempt that was accepted, and the
// view taken after it was applied still shows the proposer as leader of the term it claimed in. An earlier attempt
// that arrives late, forwarded by a deposed leader, must not be credited.
func Owns(applied, attempt uint64, accepted bool, after View, term uint64) bool {
	return applied == attempt && accepted && Leads(after, term)
}

// Extends says whether what was confirmed in term may extend the lease of a token whose accepted claim has claimTerm.
func Extends(claimTerm, term uint64) bool { return claimTerm == term }
