package owner

import (
	"sync/atomic"
	"time"
)

// ended is the word of a lease that is over for ever.
const ended = -1

// LeaseUntil is the deadline of a lease that was confirmed by something begun at t0: the confirmation's start counts, not
// its end, since the majority may have answered at any instant in between.
func LeaseUntil(t0, lease time.Duration) time.Duration { return t0 + lease }

// Extend is the rule of one lease word: the word that follows w when it is confirmed until the given deadline, seen at now.
// A lease that ended or lapsed stays so; a deadline never moves back.
func Extend(w int64, now, until time.Duration) int64 {
	if !Good(w, now) {
		return ended
	}
	return max(w, int64(until))
}

// Good says whether the lease word w is trusted at now.
func Good(w int64, now time.Duration) bool { return w != ended && int64(now) < w }

// A Lease is the end and the deadline of a token's validity in one word, so that no extension in flight can revive what
// was ended. The zero Lease is lapsed. It is safe for concurrent use.
type Lease struct{ word atomic.Int64 }

// Start sets the first deadline. It is called once, before the lease is shared.
func (l *Lease) Start(until time.Duration) { l.word.Store(int64(until)) }

// Good says whether the lease is trusted at now. A lease that was once seen lapsed has ended: an extension whose clock was
// read before that does not bring it back.
func (l *Lease) Good(now time.Duration) bool {
	for {
		w := l.word.Load()
		if Good(w, now) {
			return true
		}
		if w == ended || l.word.CompareAndSwap(w, ended) {
			return false
		}
	}
}

// Extend moves the deadline to until, unless the lease ended or lapsed before now. It says whether the lease is good.
func (l *Lease) Extend(now, until time.Duration) bool {
	for {
		w := l.word.Load()
		next := Extend(w, now, until)
		if l.word.CompareAndSwap(w, next) {
			return next != ended
		}
	}
}

// End ends the lease for ever.
func (l *Lease) End() { l.word.Store(ended) }

// Deadline is the instant until which the lease is trusted; it is negative once the lease has ended.
func (l *Lease) Deadline() time.Duration { return time.Duration(l.word.Load()) }
