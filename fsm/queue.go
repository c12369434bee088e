package fsm

import (
	"cmp"
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// lockKey names a lock: equal names of different kinds never meet.
type lockKey struct {
	kind fsmpb.Lock_Kind
	name string
}

// lock is the queue of one name, of a mutex, a semaphore, an election or a job. One that nobody holds, nobody waits for
// and no grace closes does not exist. It may be free and waited for: by a claimant that wants other names as well.
type lock struct {
	key      lockKey
	holders  []*claimant // by token
	waiters  []*claimant // by ticket: first come, first served
	permits  uint32      // total of a semaphore; zero: it is none
	closures []*closure  // by token; while there is one, nobody is granted
}

// claimant is who holds or waits, and for what. It has a place in the queue of each of its names, all under one ticket
// and then under one token.
//
// Tickets come from the shard's one counter and are taken in one entry for all names, so every queue is in the order of
// tickets. Hence nothing that waits can wait for itself in a circle: the claimant with the smallest ticket is the
// first in all its queues, so it waits for holders only, and holders wait for nobody. In whatever order names are given,
// the engine has no deadlock.
type claimant struct {
	session *session
	seq     uint64
	locks   []*lock // in the order of the operation that asked for them
	ticket  Token   // place in the order of arrival
	token   Token   // of the grant; zero: it waits
	mode    fsmpb.Lock_Mode
	value   []byte // shared with readers and never changed in place
	maxHold time.Duration
	grace   time.Duration
	started bool // the holder knows of the grant
	revoke  bool // the holder was asked to give up
	gone    bool // neither holds nor waits any more
}

// closure keeps a name closed after the death of a holder that asked for a grace.
type closure struct {
	lock  *lock
	token Token // of the dead grant
	grace time.Duration
	over  bool
}

func (c *claimant) isGone() bool { return c.gone }
func (x *closure) isGone() bool  { return x.over }

func byToken(c *claimant, t Token) int       { return cmp.Compare(c.token, t) }
func byTicket(c *claimant, t Token) int      { return cmp.Compare(c.ticket, t) }
func closureAt(c *closure, t Token) int      { return cmp.Compare(c.token, t) }
func claimantAt(c *claimant, seq uint64) int { return cmp.Compare(c.seq, seq) }

func (a lockKey) compare(b lockKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

// admits reports whether a claimant of that mode may hold the lock beside those that do, but for one of them that is
// about to leave, if any. It is the whole difference between kinds of locks.
func (l *lock) admits(mode fsmpb.Lock_Mode, leaving *claimant) bool {
	n := len(l.holders)
	if leaving != nil {
		n--
	}
	switch {
	case len(l.closures) > 0:
		return false
	case mode == fsmpb.Lock_PERMIT:
		return n < int(l.permits)
	case mode == fsmpb.Lock_SHARED:
		return n == 0 || l.holders[0].mode == fsmpb.Lock_SHARED
	}
	return n == 0
}

// free reports whether a claimant of that mode that comes now is granted at once.
func (l *lock) free(mode fsmpb.Lock_Mode) bool { return len(l.waiters) == 0 && l.admits(mode, nil) }

// grantable reports whether a waiter's time has come: it is the first in all its queues, and all admit it.
func (c *claimant) grantable() bool {
	for _, l := range c.locks {
		if l.waiters[0] != c || !l.admits(c.mode, nil) {
			return false
		}
	}
	return true
}

// holder is who holds the lock under that token, nil if nobody does.
func (l *lock) holder(token Token) *claimant {
	i, ok := slices.BinarySearchFunc(l.holders, token, byToken)
	if !ok {
		return nil
	}
	return l.holders[i]
}

// remove takes a claimant off the lock.
func (l *lock) remove(c *claimant) {
	if i, ok := slices.BinarySearchFunc(l.holders, c.token, byToken); ok && l.holders[i] == c {
		l.holders = slices.Delete(l.holders, i, i+1)
		return
	}
	if i, ok := slices.BinarySearchFunc(l.waiters, c.ticket, byTicket); ok && l.waiters[i] == c {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
}

// purge takes all claimants that are gone off the lock, at once.
func (l *lock) purge() {
	l.holders = slices.DeleteFunc(l.holders, (*claimant).isGone)
	l.waiters = slices.DeleteFunc(l.waiters, (*claimant).isGone)
}

// pop takes the first waiter off the queue, without moving the others.
func (l *lock) pop() {
	l.waiters[0] = nil
	l.waiters = l.waiters[1:]
	if len(l.waiters) == 0 {
		l.waiters = nil
	}
}

// idle reports whether nothing is left of the lock.
func (l *lock) idle() bool { return len(l.holders) == 0 && len(l.waiters) == 0 && len(l.closures) == 0 }

// holder is who holds the name under that token, nil if nobody does.
func (st *state) holder(kind fsmpb.Lock_Kind, name []byte, token uint64) *claimant {
	l := st.locks[lockKey{kind, string(name)}]
	if l == nil || token == 0 {
		return nil
	}
	return l.holder(Token(token))
}

// at is the lock of that name, made if it does not exist.
func (st *state) at(k lockKey) *lock {
	l := st.locks[k]
	if l == nil {
		l = &lock{key: k}
		st.locks[k] = l
		st.names.add(l)
	}
	return l
}

// refer enters a claimant in its session, in order of seq.
func (s *session) refer(c *claimant) {
	i, _ := slices.BinarySearchFunc(s.refs, c.seq, claimantAt)
	s.refs = slices.Insert(s.refs, i, c)
}

// unrefer drops a claimant.
func (s *session) unrefer(c *claimant) {
	if i, ok := slices.BinarySearchFunc(s.refs, c.seq, claimantAt); ok {
		s.refs = slices.Delete(s.refs, i, i+1)
	}
}

// ref is what operation seq holds or waits for, nil if nothing.
func (s *session) ref(seq uint64) *claimant {
	i, ok := slices.BinarySearchFunc(s.refs, seq, claimantAt)
	if !ok {
		return nil
	}
	return s.refs[i]
}
