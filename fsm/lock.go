package fsm

import (
	"slices"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// lock grants a name at once, or takes a place in its queue. Each operation stands for itself: a session that has the
// name and asks again waits behind itself.
func (t *txn) lock(s *session, seq uint64, k *fsmpb.Lock) *fsmpb.Result {
	name := string(k.Name)
	l := t.st.locks[name]
	if l != nil && k.Try && (len(l.waiters) > 0 || !l.admits(exclusive)) {
		return status(fsmpb.Result_HELD)
	}
	if l == nil {
		l = &lock{name: name}
		t.st.locks[name] = l
	}
	c := claimant{session: s, seq: seq, mode: exclusive, permits: 1, value: k.Value}
	s.refer(ref{seq, l})
	if len(l.waiters) == 0 && l.admits(c.mode) {
		token := t.hold(l, c)
		return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(token)}
	}
	w := waiter{c, l.ticket()}
	l.waiters = append(l.waiters, w)
	t.val = appendClaimant(t.val[:0], c)
	t.set(t.sp.named(t.key[:0], kindWaiter, name, w.ticket))
	return status(fsmpb.Result_QUEUED)
}

// unlock frees exactly the grant with that token, whoever asks: who knows the token may.
func (t *txn) unlock(u *fsmpb.Unlock) *fsmpb.Result {
	l := t.st.locks[string(u.Name)]
	if l == nil {
		return status(fsmpb.Result_NOT_HELD)
	}
	i := l.holder(Token(u.Token))
	if i < 0 {
		return status(fsmpb.Result_NOT_HELD)
	}
	h := l.holders[i]
	t.drop(l, h.session, h.seq)
	return status(fsmpb.Result_OK)
}

// cancelLock undoes a Lock operation of the session, or, if it has not arrived, takes its place among the results, so
// that a late copy finds itself cancelled and cannot make a hold that nobody knows of.
func (t *txn) cancelLock(s *session, seq uint64) *fsmpb.Result {
	if l := s.ref(seq); l != nil {
		outcome := fsmpb.Result_REMOVED
		if l.held(s, seq) >= 0 {
			outcome = fsmpb.Result_RELEASED
		}
		t.drop(l, s, seq)
		t.update(s, seq, status(fsmpb.Result_CANCELLED))
		return status(outcome)
	}
	if _, seen := s.find(seq); seen || seq <= s.low {
		return status(fsmpb.Result_NOT_HELD)
	}
	t.remember(s, seq, status(fsmpb.Result_CANCELLED))
	return status(fsmpb.Result_UNSEEN)
}

// drop removes a claimant from a lock and from its session, and grants what that frees.
func (t *txn) drop(l *lock, s *session, seq uint64) {
	t.leave(l, s, seq)
	s.unrefer(seq, l)
	t.grant(l)
}

// leave removes a claimant from a lock, be it holder or waiter.
func (t *txn) leave(l *lock, s *session, seq uint64) {
	if i := l.held(s, seq); i >= 0 {
		token := l.holders[i].token
		l.holders = slices.Delete(l.holders, i, i+1)
		t.unset(t.sp.named(t.key[:0], kindHolder, l.name, uint64(token)))
		t.tell(Event{Kind: Freed, Session: s.id, Seq: seq, Token: token, Name: []byte(l.name)})
		return
	}
	if i := l.waits(s, seq); i >= 0 {
		t.unset(t.sp.named(t.key[:0], kindWaiter, l.name, l.waiters[i].ticket))
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
}

// grant grants a lock to the head of its queue as long as that is possible. The queue holds only living sessions,
// because a session that ends leaves all queues before anything is granted.
func (t *txn) grant(l *lock) {
	for len(l.waiters) > 0 && l.admits(l.waiters[0].mode) {
		w := l.waiters[0]
		l.waiters = slices.Delete(l.waiters, 0, 1)
		t.unset(t.sp.named(t.key[:0], kindWaiter, l.name, w.ticket))
		token := t.hold(l, w.claimant)
		t.update(w.session, w.seq, &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(token)})
	}
	if l.idle() {
		delete(t.st.locks, l.name)
	}
}

// hold makes a claimant a holder, under a fresh token.
func (t *txn) hold(l *lock, c claimant) Token {
	token := t.mint()
	l.holders = append(l.holders, holder{c, token})
	t.val = appendClaimant(t.val[:0], c)
	t.set(t.sp.named(t.key[:0], kindHolder, l.name, uint64(token)))
	t.tell(Event{Kind: Granted, Session: c.session.id, Seq: c.seq, Token: token, Name: []byte(l.name)})
	return token
}
