package fsm

import (
	"math"
	"time"
)

// EraBits is the number of low bits of a token that count within an era. The 11 bits above them are the era, which
// a restore or a forced repair raises; the top bit stays clear, so a token fits a signed 64-bit column.
const EraBits = 52

// MaxEra is the largest era.
const MaxEra = 1<<(63-EraBits) - 1

// A Token is a fencing number: it strictly rises within a shard, for ever. Claims, session creations and grants are
// all minted from one counter, so any two of them can be compared. Zero is no token.
type Token uint64

// FirstToken is the token before the first one of an era: the counter's value in a new shard.
func FirstToken(era uint64) Token { return Token(era << EraBits) }

// Era is the era in which the token was minted.
func (t Token) Era() uint64 { return uint64(t) >> EraBits }

// A Revision counts the changes of a shard's config records: all that one operation changes has one. Zero is before the
// first change.
type Revision uint64

// A Claim is a shard's last accepted claim: who may own it. The zero Claim means that there was none yet. It is
// comparable and without pointers but the node's name, so a model can copy it freely.
type Claim struct {
	Token       Token         // stamps every batch of the owner
	Node        string        // the owner's stored id
	Incarnation uint64        // of that node, when it claimed
	Term        uint64        // Raft term of the claim, or of the last one that kept the token
	Lease       time.Duration // how long a successor has to wait, unless Released
	Released    bool          // the owner gave up: nothing is accepted until the next claim
}

// A ClaimRequest is what a claim's entry says.
type ClaimRequest struct {
	Node        string
	Incarnation uint64
	Term        uint64
	Lease       time.Duration
	Replaces    Token         // of the claim that the claimer read before it waited, zero: there was none
	Keep        bool          // the claimer's lease never lapsed: the same token goes on
	Waited      time.Duration // since the claimer read that claim
}

// Accepts reports whether the shard accepts next as its claim. The claimer must have seen the last claim, or the
// wait it did was for another lease. Its term must be newer, or equal and from the same process: a shard whose
// owner's lease lapsed while it stays leader would otherwise never have an owner again. A token is kept only by the
// process that has it.
func (c Claim) Accepts(next ClaimRequest) bool {
	same := c.Node == next.Node && c.Incarnation == next.Incarnation
	switch {
	case next.Replaces != c.Token:
		return false
	case next.Term < c.Term, next.Term == c.Term && !same:
		return false
	case next.Keep && (c.Token == 0 || c.Released || !same):
		return false
	}
	return true
}

// After is the claim that stands once next was accepted: under the same token if it keeps it, else under minted.
func (c Claim) After(next ClaimRequest, minted Token) Claim {
	if next.Keep {
		c.Term, c.Lease = next.Term, next.Lease
		return c
	}
	return Claim{Token: minted, Node: next.Node, Incarnation: next.Incarnation, Term: next.Term, Lease: next.Lease}
}

// AcceptsStamp reports whether a batch stamped t may change the shard: only under the token of the current claim,
// and not after its release.
func (c Claim) AcceptsStamp(t Token) bool { return t != 0 && t == c.Token && !c.Released }

// SilenceAfterClaim is the silence that a new owner has to assume at least. One that was hot may have been renewed in
// the former owner's memory until a moment ago: nothing is known. One that was cold cannot have been, so the time
// that the claimer waited adds up, and repeated failovers cannot keep a dead session alive for ever.
func SilenceAfterClaim(hot bool, silence, waited, ttl time.Duration) time.Duration {
	if hot {
		return 0
	}
	limit := SessionLimit(ttl)
	silence, waited = max(silence, 0), max(waited, 0)
	if silence >= limit || waited >= limit-silence {
		return limit
	}
	return silence + waited
}

// A Life is what the log knows of a session's life, told apart by numbers from the shard's one counter. It says nothing of
// renewals that an owner kept in memory.
type Life struct {
	Heard   Token         // minted when the log last heard of it, by its opening, a renewal or a checkpoint
	Silence time.Duration // zero: it was renewed then; else for how long at least it had been silent when that was recorded
}

// IsHot reports whether the owner with that token may renew the session in memory, without a log entry.
func (l Life) IsHot(owner Token) bool { return owner != 0 && l.Heard > owner && l.Silence == 0 }

// Renewed is the life after a renewal in the log.
func (l Life) Renewed(minted Token) Life { return Life{Heard: minted} }

// Checkpointed is the life after the owner recorded a silence that it measured when the log had last heard of the session
// under the given number: cold, so that the next renewal goes through the log. It is refused when the log has heard of
// the session since: the renewal was taken after the silence was measured, in whatever order the entries went. The
// silence is bounded by the session's limit.
func (l Life) Checkpointed(heard, minted Token, silence, ttl time.Duration) (Life, bool) {
	if heard != l.Heard {
		return l, false
	}
	return Life{Heard: minted, Silence: min(max(silence, 0), SessionLimit(ttl))}, true
}

// Claimed is the life after a claim that replaced the one with token last; a claim that keeps its token must not call it. Every
// session becomes cold. One that was hot may have been renewed in the former owner's memory until a moment ago: nothing is
// known. One that was cold cannot have been, so what the claimer waited adds up, and repeated failovers cannot keep a dead
// session alive for ever; but it adds nothing to a silence that was recorded under the last claim, which may have been
// measured while the claimer waited, and would count that time twice.
func (l Life) Claimed(last Token, waited, ttl time.Duration) Life {
	if l.Heard > last {
		return l
	}
	return Life{Heard: l.Heard, Silence: SilenceAfterClaim(false, l.Silence, waited, ttl)}
}

// slowestClock is the rate at which a clock is trusted to run at least, in per cent of any other's: they run at nearly the same rate, within one
// per cent, and either of two may be the slower. So a wait for what another counts is longer by 1/0.99; 1.01 would fall short of a clock at 0.99.
const slowestClock = 99

// Outlast is how long to wait on one clock so that d has passed on any other: d × 1/0.99, rounded up. It saturates instead of overflowing.
func Outlast(d time.Duration) time.Duration {
	d = max(d, 0)
	const lack = 100 - slowestClock
	more := d / slowestClock * lack
	if rest := d % slowestClock; rest != 0 {
		more += (rest*lack + slowestClock - 1) / slowestClock
	}
	if d > math.MaxInt64-more {
		return math.MaxInt64
	}
	return d + more
}

// SessionLimit is the silence after which an owner may end a session: on no clock has its TTL not passed then.
func SessionLimit(ttl time.Duration) time.Duration { return Outlast(ttl) }
