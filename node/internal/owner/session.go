package owner

import (
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// A Session is what the owner keeps in memory of one session.
type Session struct {
	TTL      time.Duration // from the session's record
	Renewed  time.Duration // when it was last renewed here, or when it was adopted less the silence known then
	Hot      bool          // a renewal under the owner's token is in the log, and no checkpoint was proposed since
	Renewing bool          // a renewal is on its way through the log
	Expiring bool          // its end was proposed, whatever came of it
}

// How says how a renewal is taken.
type How uint8

// The ways to take a renewal.
const (
	Refuse   How = iota // not now: the lease is not good, or the session's end was proposed
	InMemory            // no log entry: no other owner can exist, and the next one counts from its own claim
	InLog               // by a stamped entry, answered after it was applied
)

// Adopted is the owner's first knowledge of a session: silence is what the state machine knew when the claim was applied, at
// now or before. Every session is cold under a new token.
func Adopted(ttl, silence, now time.Duration) Session {
	return Session{TTL: ttl, Renewed: now - silence}
}

// SessionDeadline is when the owner may propose the session's end: later than any deadline that its holder may trust, whose
// clock may run slower by the margin and who counts from before it sent its last accepted renewal.
func SessionDeadline(s Session) time.Duration { return s.Renewed + fsm.SessionLimit(s.TTL) }

// Renew decides how a renewal that arrives while the lease is good or not is taken.
func Renew(s Session, leaseGood bool) How {
	switch {
	case s.Expiring || !leaseGood:
		return Refuse
	case s.Hot:
		return InMemory
	default:
		return InLog
	}
}

// AfterRenewal is the session after a renewal was taken: in memory at now, or through the log when it was applied at now.
func AfterRenewal(s Session, how How, now time.Duration) Session {
	s.Renewed = max(s.Renewed, now)
	if how == InLog {
		s.Hot = true
	}
	return s
}

// Expires says whether the session's end may be proposed at now. late is the time by which the owner's loop was late since it
// adopted the session: renewals may have waited unread that long. While a renewal is on its way through the log the
// holder may yet be told that it was renewed.
func Expires(s Session, now, late time.Duration) bool {
	return !s.Expiring && !s.Renewing && now >= SessionDeadline(s)+late
}

// Checkpoints says whether the owner should log how long the session has been silent, so that a later owner does not start
// the session's time anew: after half the TTL, once.
func Checkpoints(s Session, now time.Duration) bool {
	return s.Hot && !s.Expiring && now-s.Renewed >= s.TTL/2
}

// NextLook is the earliest instant at which Checkpoints or Expires may answer yes, if the session is not renewed and nothing of it is proposed
// before: until then an owner need not look at it. late is that of Expires.
func NextLook(s Session, late time.Duration) time.Duration {
	if s.Hot && !s.Expiring {
		return s.Renewed + s.TTL/2
	}
	return SessionDeadline(s) + late
}

// Checkpointing is the session from the proposing of a checkpoint on: renewals go through the log.
func Checkpointing(s Session) Session {
	s.Hot = false
	return s
}

// Silence is how long the session has been silent at now, at least: what a checkpoint records.
func Silence(s Session, now time.Duration) time.Duration { return max(0, now-s.Renewed) }
