package owner

import (
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// A mutant takes one rule out. It must break a guarantee within its walks.
type mutant struct {
	name   string
	breaks string // the guarantee that falls
	change func(*rules)
	bounds func(*bounds)
	walks  int
	steps  int
}

// two is two terms, and no other faults than lost messages and pauses.
func two(b *bounds) { b.terms, b.writes, b.releases, b.drifts, b.length = 2, 0, 0, 0, 8 }

func sessions(b *bounds) {
	two(b)
	b.sessions = true
}

// one is a single owner for ever, on clocks that may drift.
func one(b *bounds) {
	sessions(b)
	b.terms, b.drifts = 1, 1
}

// uneven is two terms on clocks of which some run at 0.99 of the others' rate for ever: at the end of its lease, or its holder's session, of
// uneven length, a slow clock shows one unit less when the others have gone 1.01 times as far.
const (
	fast         = 10_000
	slow         = 9_900
	unevenLength = 2*slow + 1
)

// slowOwner is a first owner whose clock is slow.
func slowOwner(b *bounds) {
	two(b)
	b.lease = [members]int32{unevenLength, unevenLength, unevenLength}
	b.step = [members + 1]int32{slow, fast, fast, fast}
}

// slowHolder is a holder whose clock is slow, with a patient owner.
func slowHolder(b *bounds) {
	one(b)
	b.drifts, b.ttl = 0, unevenLength
	b.lease = [members]int32{3 * fast, 3 * fast, 3 * fast}
	b.step = [members + 1]int32{fast, fast, fast, slow}
}

// hundredth is d and one per cent of it, rounded up: too little for a clock that runs at 0.99 of another's rate.
func hundredth(d time.Duration) time.Duration { return d + (d+99)/100 }

// patient nodes have leases of four ticks.
func patient(b *bounds) { b.lease = [members]int32{400, 400, 400} }

// silent is a session of the given TTL that has not been renewed for a while, which the owner knows.
func silent(b *bounds, ttl, silence int32) {
	sessions(b)
	b.ttl, b.messages = ttl, 1
	b.prepare = func(s *state) {
		s.holder.word -= int64(silence)
		s.nodes[0].own.session.Renewed -= unit(silence)
	}
}

// unopened is a start before the session is opened.
func unopened(b *bounds) {
	one(b)
	b.messages = 2
	b.prepare = func(s *state) {
		s.holder = holder{}
		for i := range s.nodes {
			n := &s.nodes[i]
			n.machine.session, n.machine.life, n.machine.minted = noSession, fsm.Life{}, 1
			n.own.known, n.own.session = false, Session{}
		}
	}
}

// succeeded is a start at which the second node has become the owner, and the first, whose lease lapsed, does not know it.
func succeeded() []action {
	return []action{act(elect, 1, 2), act(appendOK, 1, 2), act(claimStart, 1, 1), act(appendOK, 1, 2), act(applyNext, 1), act(readDone, 1),
		act(tick, even), act(tick, even), act(tick, even), act(claimPropose, 1, 1), act(appendOK, 1, 2), act(applyNext, 1), act(look, 1, 0)}
}

// overtaken is a start at which a renewal went into the log before a checkpoint that was measured before it.
func overtaken() []action {
	return []action{act(checkpoint, 0), act(send, 0), act(deliver, 0, 0), act(proposeQueued, 0, 1, 1), act(appendOK, 0, 1), act(applyNext, 0),
		act(look, 0, 1), act(account, 0), act(receive, 0), act(proposeQueued, 0, 1, 0), act(appendOK, 0, 1), act(appendOK, 0, 2)}
}

// renewing is a start at which the holder's renewal was applied, and the owner has not looked yet.
func renewing() []action {
	return []action{act(checkpoint, 0), act(proposeQueued, 0, 1, 0), act(appendOK, 0, 1), act(applyNext, 0), act(look, 0, 1),
		act(send, 0), act(deliver, 0, 0), act(proposeQueued, 0, 1, 0), act(appendOK, 0, 1), act(applyNext, 0), act(look, 0, 1)}
}

// released is a start at which the first node has given the shard up, and leads on.
func released(s *state) {
	s.end(0)
	for i := range s.nodes {
		n := &s.nodes[i]
		n.machine.claim.Released = true
		n.raft.push(entry{kind: releaseEntry, stamp: 1, attempt: 1, incarnation: 1})
		n.raft.commit, n.raft.at = n.raft.length, n.raft.length
	}
}

// unanswered is a start at which the second node's claim was committed without its knowing, the third was elected and has read that
// claim, and the second, which does not know that either, has claimed again.
func unanswered() []action {
	return []action{act(elect, 1, 2), act(appendOK, 1, 2), act(claimStart, 1, 1), act(appendOK, 1, 2), act(applyNext, 1), act(readDone, 1),
		act(claimPropose, 1, 1), act(appendLost, 1, 2), act(giveUp, 1, 0), act(claimStart, 1, 1), act(appendOK, 1, 2), act(readDone, 1),
		act(elect, 2, 0), act(appendOK, 2, 0), act(claimStart, 2, 1), act(appendOK, 2, 0), act(applyNext, 2), act(applyNext, 2), act(readDone, 2),
		act(tick, even), act(tick, even), act(claimPropose, 1, 1)}
}

func mutants() []mutant {
	return []mutant{
		{"ClaimWithoutWaiting", "(a)", func(r *rules) {
			r.claim.mayClaim = func(Plan, time.Duration, time.Duration) bool { return true }
		}, nil, 2000, 40},
		{"WaitByOwnSetting", "(a)", func(r *rules) {
			r.claim.plan = func(c fsm.Claim, me ID, held fsm.Token, dead bool) Plan {
				c.Lease = 200
				return PlanClaim(c, me, held, dead)
			}
		}, func(b *bounds) { b.lease[0] = 400; b.terms = 3 }, 20000, 40},
		{"WaitWithoutMargin", "(a)", func(r *rules) {
			r.claim.plan = func(c fsm.Claim, me ID, held fsm.Token, dead bool) Plan {
				p := PlanClaim(c, me, held, dead)
				if p.Wait > 0 {
					p.Wait = c.Lease
				}
				return p
			}
		}, nil, 200000, 40},
		{"ConfirmedByReadAlone", "(a)", func(r *rules) {
			r.claim.confirmed = func(before, _ View) bool { return before.Self }
		}, func(b *bounds) { two(b); patient(b) }, 200000, 50},
		{"LeaseFromTheEndOfItsConfirmation", "(a)", func(r *rules) { r.broken.leaseFromDone = true }, two, 100000, 50},
		{"AnyAttemptOwns", "(a)", func(r *rules) { r.broken.oneAttempt = true }, func(b *bounds) { two(b); b.terms, b.prepare, b.script = 3, released, unanswered() }, 150000, 50},
		{"OwnsWithoutLeading", "(a)", func(r *rules) {
			r.claim.owns = func(applied, attempt uint64, accepted bool, _ View, _ uint64) bool {
				return applied == attempt && accepted
			}
		}, nil, 150000, 56},
		{"AppliedEntryConfirms", "(a)", func(r *rules) {
			r.lease.leads = func(View, uint64) bool { return true }
		}, func(b *bounds) { two(b); patient(b); b.writes = 2 }, 150000, 50},
		{"EndedLeaseRevived", "(a)", func(r *rules) {
			r.lease.extend = func(w int64, _, until time.Duration) int64 { return max(w, int64(until)) }
		}, nil, 150000, 50},
		{"AnyStampAccepted", "(b)", func(r *rules) { r.apply.stamp = func(fsm.Claim, fsm.Token) bool { return true } }, nil, 100000, 40},
		{"ReleasedStampAccepted", "(b)", func(r *rules) {
			r.apply.stamp = func(c fsm.Claim, t fsm.Token) bool { return t == c.Token }
		}, func(b *bounds) { two(b); b.writes, b.releases, b.forwards = 1, 1, 2 }, 150000, 40},
		{"LeaseEndsAfterRelease", "(a)", func(r *rules) { r.broken.endAfterRelease = true }, nil, 100000, 40},
		{"ForwardedBeforePublished", "(a)", func(r *rules) { r.broken.forwardEarly = true }, nil, 150000, 50},
		{"SessionFromAnswer", "(d)", func(r *rules) { r.broken.sessionFromDone = true }, one, 100000, 40},
		{"SessionFromLastAsking", "(d)", func(r *rules) { r.broken.openFromLast = true }, unopened, 150000, 50},
		{"RenewedWithoutLease", "(d)", func(r *rules) {
			r.session.renew = func(s Session, _ bool) How { return Renew(s, true) }
		}, func(b *bounds) { sessions(b); b.ttl, b.script = 500, succeeded() }, 150000, 56},
		{"ColdRenewedInMemory", "(d)", func(r *rules) {
			r.session.renew = func(s Session, good bool) How {
				s.Hot = true
				return Renew(s, good)
			}
		}, func(b *bounds) { silent(b, 800, 600) }, 150000, 56},
		{"AnsweredBeforeApplied", "(d)", func(r *rules) { r.broken.answerEarly = true }, func(b *bounds) { silent(b, 300, 200) }, 150000, 56},
		{"CheckpointLeavesHot", "(d)", func(r *rules) { r.session.checkpointing = func(s Session) Session { return s } }, func(b *bounds) { silent(b, 800, 600) }, 150000, 56},
		{"SessionWithoutMargin", "(d)", func(r *rules) {
			r.session.expires = func(s Session, now, late time.Duration) bool {
				return Expires(s, now+fsm.SessionLimit(s.TTL)-s.TTL, late)
			}
		}, func(b *bounds) { one(b); b.drifts = 1 }, 100000, 40},
		{"WaitAHundredthLonger", "(a)", func(r *rules) {
			r.claim.plan = func(c fsm.Claim, me ID, held fsm.Token, dead bool) Plan {
				p := PlanClaim(c, me, held, dead)
				if p.Wait > 0 {
					p.Wait = hundredth(c.Lease)
				}
				return p
			}
		}, slowOwner, 150000, 40},
		{"SessionAHundredthLonger", "(d)", func(r *rules) {
			r.session.expires = func(s Session, now, late time.Duration) bool {
				return !s.Expiring && !s.Renewing && now >= s.Renewed+hundredth(s.TTL)+late
			}
		}, slowHolder, 100000, 40},
		{"CheckpointOfAnything", "(d)", func(r *rules) {
			r.apply.checkpointed = func(l fsm.Life, _, minted fsm.Token, silence, ttl time.Duration) (fsm.Life, bool) {
				return l.Checkpointed(l.Heard, minted, silence, ttl)
			}
		}, func(b *bounds) { silent(b, 800, 700); patient(b); b.script = overtaken() }, 150000, 56},
		{"WaitCountedTwice", "(d)", func(r *rules) {
			r.apply.claimed = func(l fsm.Life, last fsm.Token, waited, ttl time.Duration) fsm.Life {
				return fsm.Life{Heard: l.Heard, Silence: fsm.SilenceAfterClaim(l.IsHot(last), l.Silence, waited, ttl)}
			}
		}, func(b *bounds) { silent(b, 1200, 600); patient(b) }, 150000, 56},
		{"ClaimAddsToHot", "(d)", func(r *rules) {
			r.apply.claimed = func(l fsm.Life, last fsm.Token, waited, ttl time.Duration) fsm.Life {
				return fsm.Life{Heard: l.Heard, Silence: fsm.SilenceAfterClaim(false, l.Silence, waited, ttl)}
			}
		}, func(b *bounds) { sessions(b); patient(b); b.ttl = 400 }, 150000, 56},
		{"ReleasedWhileRenewing", "(d)", func(r *rules) { r.broken.releaseRenewing = true }, func(b *bounds) {
			silent(b, 800, 700)
			patient(b)
			b.releases, b.script = 1, renewing()
		}, 150000, 56},
		{"EndedEarlierForLateness", "(d)", func(r *rules) {
			r.session.expires = func(s Session, now, _ time.Duration) bool { return Expires(s, now, -unit(tickUnits)) }
		}, one, 150000, 40},
		{"AdoptedAtTheEnd", "(d)", func(r *rules) {
			r.session.adopted = func(ttl, _, now time.Duration) Session { return Adopted(ttl, ttl, now) }
		}, sessions, 150000, 40},
	}
}

// newerTermOnly refuses a claim in the last claim's own term, also of the same process.
func newerTermOnly(accepts func(fsm.Claim, fsm.ClaimRequest) bool) func(fsm.Claim, fsm.ClaimRequest) bool {
	return func(c fsm.Claim, q fsm.ClaimRequest) bool { return q.Term > c.Term && accepts(c, q) }
}
