package owner

import (
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// rules are the functions that the node uses. A mutant has one of them replaced.
type rules struct {
	claim   claimRules
	lease   leaseRules
	session sessionRules
	apply   applyRules
	broken  steps
}

type claimRules struct {
	confirmed func(before, after View) bool
	plan      func(fsm.Claim, ID, fsm.Token, bool) Plan
	mayClaim  func(p Plan, t0, now time.Duration) bool
	owns      func(applied, attempt uint64, accepted bool, after View, term uint64) bool
}

type leaseRules struct {
	good    func(int64, time.Duration) bool
	extend  func(w int64, now, until time.Duration) int64
	extends func(claimTerm, term uint64) bool
	leads   func(View, uint64) bool
}

type sessionRules struct {
	adopted       func(ttl, silence, now time.Duration) Session
	renew         func(Session, bool) How
	expires       func(Session, time.Duration, time.Duration) bool
	checkpoints   func(Session, time.Duration) bool
	checkpointing func(Session) Session
}

type applyRules struct {
	accepts      func(fsm.Claim, fsm.ClaimRequest) bool
	stamp        func(fsm.Claim, fsm.Token) bool
	checkpointed func(l fsm.Life, heard, minted fsm.Token, silence, ttl time.Duration) (fsm.Life, bool)
	claimed      func(l fsm.Life, last fsm.Token, waited, ttl time.Duration) fsm.Life
}

// steps are what a mutant does in another order, or leaves out, where no single function stands for the rule.
type steps struct {
	leaseFromDone   bool // a confirmation counts from its end
	sessionFromDone bool // a renewal counts from its answer
	openFromLast    bool // a session counts from the last time it was asked for
	endAfterRelease bool // the lease goes on while the release is proposed
	endAfterClaim   bool // the local token goes on while a claim for another is proposed
	oneAttempt      bool // attempts are not told apart
	answerEarly     bool // a logged renewal is answered before it was applied
	spareUnknown    bool // an expiry of unknown outcome is forgotten
	waitedFromStart bool // the time that a claim adds counts from the start of the confirmation
	releaseRenewing bool // a release records a silence also while a renewal is on its way through the log
	forwardEarly    bool // dragonboat: forwards in a new term before it publishes it
}

func shipped() rules {
	return rules{
		claim:   claimRules{Confirmed, PlanClaim, MayClaim, Owns},
		lease:   leaseRules{Good, Extend, Extends, Leads},
		session: sessionRules{Adopted, Renew, Expires, Checkpoints, Checkpointing},
		apply:   applyRules{fsm.Claim.Accepts, fsm.Claim.AcceptsStamp, fsm.Life.Checkpointed, fsm.Life.Claimed},
	}
}

// applied is what came of an entry.
type applied struct {
	accepted bool
	expired  bool
	breach   string
}

// apply is the state machine: the rules that hold at apply, around a write counter and one session.
func (m *model) apply(sm *machine, e entry) (a applied) {
	ttl := unit(m.ttl)
	switch e.kind {
	case noop:
		return a
	case claimEntry:
		next := fsm.ClaimRequest{Node: names[e.node], Incarnation: uint64(e.incarnation), Term: uint64(e.term), Lease: unit(m.lease[e.node]),
			Replaces: fsm.Token(e.replaces), Keep: e.keep, Waited: time.Duration(e.span)}
		last := sm.claim
		if !m.rules.apply.accepts(last, next) {
			return a
		}
		minted := last.Token
		if !e.keep {
			sm.minted++
			minted = sm.minted
			sm.life = m.rules.apply.claimed(sm.life, last.Token, next.Waited, ttl)
		}
		sm.claim = last.After(next, minted)
		return applied{accepted: true}
	}
	if !m.rules.apply.stamp(sm.claim, fsm.Token(e.stamp)) {
		return a
	}
	if !sm.claim.AcceptsStamp(fsm.Token(e.stamp)) {
		return applied{breach: "(b) an entry with a stale stamp changed the state"}
	}
	a.accepted = true
	if e.kind == writeEntry {
		sm.version++
		return a
	}
	if e.kind == releaseEntry {
		sm.claim.Released = true
	}
	m.applySession(sm, e, &a)
	return a
}

func (m *model) applySession(sm *machine, e entry, a *applied) {
	ttl := unit(m.ttl)
	switch {
	case e.kind == openEntry && sm.session == noSession:
		sm.minted++
		sm.session, sm.life = liveSession, fsm.Life{}.Renewed(sm.minted)
	case sm.session != liveSession:
	case e.kind == renewEntry:
		sm.minted++
		sm.life = sm.life.Renewed(sm.minted)
	case e.kind == checkpointEntry, e.kind == releaseEntry:
		sm.minted++
		sm.life, _ = m.rules.apply.checkpointed(sm.life, fsm.Token(e.about), sm.minted, time.Duration(e.span), ttl)
	case e.kind == expireEntry:
		sm.session, a.expired = endedSession, true
	}
}
