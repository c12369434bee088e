package fsm

import (
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// lock grants names at once, or takes a place in their queues. Each operation stands for itself: a session that has a
// name and asks again waits behind itself.
func (t *txn) lock(s *session, seq uint64, k *fsmpb.Lock) *fsmpb.Result {
	if k.Kind == fsmpb.Lock_JOB {
		if j := t.st.jobs[string(k.Name)]; j != nil && j.done != 0 {
			return t.doneBefore(j)
		}
	}
	free := true
	for name := range namesOf(k) {
		l := t.st.locks[lockKey{k.Kind, string(name)}]
		if l == nil {
			continue
		}
		if l.permits != k.Permits {
			return &fsmpb.Result{Status: fsmpb.Result_MISMATCH, Permits: l.permits}
		}
		free = free && l.free(k.Mode)
	}
	if k.Try && !free {
		return status(fsmpb.Result_HELD)
	}
	c := &claimant{session: s, seq: seq, mode: k.Mode, value: k.Value, maxHold: time.Duration(k.MaxHold),
		grace: time.Duration(k.Grace), locks: make([]*lock, 0, 1+len(k.Names))}
	for name := range namesOf(k) {
		c.locks = append(c.locks, t.st.at(lockKey{k.Kind, string(name)}))
	}
	t.total(c.locks[0], k.Permits)
	s.refer(c)
	if free {
		return t.hold(c)
	}
	c.ticket = t.mint()
	for _, l := range c.locks {
		l.waiters = append(l.waiters, c)
	}
	t.keep(c)
	return status(fsmpb.Result_QUEUED)
}

// unlock frees exactly the grant with that token, whoever asks: who knows the token may.
func (t *txn) unlock(u *fsmpb.Unlock) *fsmpb.Result {
	c := t.st.holder(u.Kind, u.Name, u.Token)
	if c == nil {
		return status(fsmpb.Result_NOT_HELD)
	}
	t.drop(c, Unlocked)
	return status(fsmpb.Result_OK)
}

// cancelLock undoes a Lock operation of the session, or, if it has not arrived, takes its place among the results, so
// that a late copy finds itself cancelled and cannot make a hold that nobody knows of.
func (t *txn) cancelLock(s *session, seq uint64) *fsmpb.Result {
	if c := s.ref(seq); c != nil {
		outcome := fsmpb.Result_REMOVED
		if c.token != 0 {
			outcome = fsmpb.Result_RELEASED
		}
		t.drop(c, Cancelled)
		t.update(s, seq, status(fsmpb.Result_CANCELLED))
		return status(outcome)
	}
	if _, seen := s.find(seq); seen || seq <= s.low {
		return status(fsmpb.Result_NOT_HELD)
	}
	t.remember(s, seq, status(fsmpb.Result_CANCELLED))
	return status(fsmpb.Result_UNSEEN)
}

// drop removes a claimant from its locks and its session, and grants what that frees.
func (t *txn) drop(c *claimant, why Reason) {
	t.leave(c, why)
	c.session.unrefer(c)
	for _, l := range c.locks {
		l.remove(c)
	}
	for _, l := range c.locks {
		t.grant(l)
	}
}

// leave ends a claimant, be it holder or waiter, but for its places in its locks and its session.
func (t *txn) leave(c *claimant, why Reason) {
	c.gone = true
	t.unset(t.sp.pair(t.key[:0], kindClaimant, uint64(c.session.id), c.seq))
	if c.token == 0 {
		return
	}
	if c.maxHold > 0 {
		t.st.timed.left(1)
	}
	for _, l := range c.locks {
		t.tell(l.event(Freed, c, why))
		if l.key.kind == fsmpb.Lock_JOB && why == Cancelled {
			t.uncount(l.key.name)
		}
		if why == Expired && c.grace > 0 {
			t.close(l, c)
		}
	}
}

// grant grants a lock to the head of its queue as long as that is possible. The queue holds only living sessions,
// because a session that ends leaves all queues before anything is granted.
func (t *txn) grant(l *lock) {
	for len(l.waiters) > 0 && l.waiters[0].grantable() {
		c := l.waiters[0]
		for _, k := range c.locks {
			k.pop()
		}
		t.update(c.session, c.seq, t.hold(c))
	}
	if l.idle() && t.st.locks[l.key] == l {
		delete(t.st.locks, l.key)
		t.st.names.remove(l)
		t.total(l, 0)
	}
}

// hold makes a claimant a holder, under a fresh token, and is the result of its operation.
func (t *txn) hold(c *claimant) *fsmpb.Result {
	c.token = t.mint()
	if c.ticket == 0 {
		c.ticket = c.token
	}
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(c.token)}
	for _, l := range c.locks {
		l.holders = append(l.holders, c)
		t.tell(l.event(Granted, c, 0))
		if l.key.kind == fsmpb.Lock_JOB {
			res.Attempt = t.count(l.key.name)
		}
	}
	if c.maxHold > 0 {
		t.st.timed.add(c)
	}
	t.keep(c)
	return res
}

// keep writes a claimant.
func (t *txn) keep(c *claimant) {
	t.val = appendClaimant(t.val[:0], c)
	t.set(t.sp.pair(t.key[:0], kindClaimant, uint64(c.session.id), c.seq))
}

// total changes the total of a semaphore; zero: it is none any more.
func (t *txn) total(l *lock, permits uint32) {
	if l.permits == permits {
		return
	}
	l.permits = permits
	key := append(t.sp.start(t.key[:0], kindTotal), l.key.name...)
	if permits == 0 {
		t.unset(key)
		return
	}
	t.val = appendTotal(t.val[:0], permits)
	t.set(key)
}

// close closes a name after the death of a holder.
func (t *txn) close(l *lock, c *claimant) {
	x := &closure{lock: l, token: c.token, grace: c.grace}
	i, _ := slices.BinarySearchFunc(l.closures, c.token, closureAt)
	l.closures = slices.Insert(l.closures, i, x)
	t.st.closed.add(x)
	t.val = appendClosure(t.val[:0], c.grace)
	t.set(t.sp.named(t.key[:0], kindClosure, l.key, uint64(c.token)))
	e := l.event(Closed, c, 0)
	e.Length = c.grace
	t.tell(e)
}

// event tells of a claimant of the lock.
func (l *lock) event(k EventKind, c *claimant, why Reason) Event {
	return Event{Kind: k, Of: l.key.kind, Reason: why, Session: c.session.id, Seq: c.seq, Token: c.token, Name: []byte(l.key.name)}
}

// namesOf yields all names that a Lock asks for.
func namesOf(k *fsmpb.Lock) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if !yield(k.Name) {
			return
		}
		for _, name := range k.Names {
			if !yield(name) {
				return
			}
		}
	}
}
