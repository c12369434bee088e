package fsm

import (
	"slices"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// setPermits changes a semaphore's total while it is in use. Who holds too many permits then keeps them: a smaller total
// takes effect as holders leave.
func (t *txn) setPermits(x *fsmpb.SetPermits) *fsmpb.Result {
	l := t.st.locks[lockKey{fsmpb.Lock_LOCK, string(x.Name)}]
	switch {
	case l == nil:
		return status(fsmpb.Result_NOT_HELD)
	case l.permits == 0:
		return status(fsmpb.Result_MISMATCH)
	}
	t.total(l, x.Permits)
	t.grant(l)
	return status(fsmpb.Result_OK)
}

// setValue changes the value that a grant shows.
func (t *txn) setValue(x *fsmpb.SetValue) *fsmpb.Result {
	c := t.st.holder(x.Kind, x.Name, x.Token)
	if c == nil {
		return status(fsmpb.Result_NOT_HELD)
	}
	c.value = x.Value
	t.keep(c)
	for _, l := range c.locks {
		t.tell(l.event(ValueChanged, c, 0))
	}
	return status(fsmpb.Result_OK)
}

// transfer hands a grant to the first waiter of a node that can have it, before all others, or leaves everything as it is.
func (t *txn) transfer(x *fsmpb.Transfer) *fsmpb.Result {
	c := t.st.holder(x.Kind, x.Name, x.Token)
	switch {
	case c == nil:
		return status(fsmpb.Result_NOT_HELD)
	case len(c.locks) > 1:
		return invalid("the grant is of several names")
	}
	l := c.locks[0]
	i := slices.IndexFunc(l.waiters, func(w *claimant) bool {
		return w.session.node == x.Node && len(w.locks) == 1 && l.admits(w.mode, c)
	})
	if i < 0 {
		return status(fsmpb.Result_NOT_FOUND)
	}
	w := l.waiters[i]
	t.leave(c, Transferred)
	c.session.unrefer(c)
	l.remove(c)
	l.remove(w)
	res := t.hold(w)
	t.update(w.session, w.seq, res)
	t.grant(l)
	return res
}

// force ends a grant. What is remembered of it says so too, or a copy of the operation would be told of a grant that is no
// more.
func (t *txn) force(x *fsmpb.Force) *fsmpb.Result {
	c := t.st.holder(x.Kind, x.Name, x.Token)
	if c == nil {
		return status(fsmpb.Result_NOT_HELD)
	}
	t.update(c.session, c.seq, status(fsmpb.Result_CANCELLED))
	t.drop(c, Forced)
	return status(fsmpb.Result_OK)
}

// requestRevoke marks the holders of a name, and tells of each, also of one that was marked before: it may have missed it.
func (t *txn) requestRevoke(x *fsmpb.RequestRevoke) *fsmpb.Result {
	l := t.st.locks[lockKey{x.Kind, string(x.Name)}]
	if l == nil || len(l.holders) == 0 {
		return status(fsmpb.Result_NOT_HELD)
	}
	for _, c := range l.holders {
		if !c.revoke {
			c.revoke = true
			t.keep(c)
		}
		t.tell(l.event(RevokeRequested, c, 0))
	}
	return status(fsmpb.Result_OK)
}

// started records that the holder knows of its grant.
func (t *txn) started(x *fsmpb.Started) *fsmpb.Result {
	c := t.st.holder(x.Kind, x.Name, x.Token)
	if c == nil {
		return status(fsmpb.Result_NOT_HELD)
	}
	if !c.started {
		c.started = true
		t.keep(c)
		e := c.locks[0].event(HoldStarted, c, 0)
		e.Length = c.maxHold
		t.tell(e)
	}
	return status(fsmpb.Result_OK)
}

// endGrace opens a name that the death of a holder closed, if no other death keeps it closed.
func (t *txn) endGrace(x *fsmpb.EndGrace) *fsmpb.Result {
	l := t.st.locks[lockKey{x.Kind, string(x.Name)}]
	if l == nil {
		return status(fsmpb.Result_NOT_FOUND)
	}
	i, ok := slices.BinarySearchFunc(l.closures, Token(x.Token), closureAt)
	if !ok {
		return status(fsmpb.Result_NOT_FOUND)
	}
	l.closures[i].over = true
	l.closures = slices.Delete(l.closures, i, i+1)
	t.st.closed.left(1)
	t.unset(t.sp.named(t.key[:0], kindClosure, l.key, x.Token))
	t.tell(Event{Kind: Reopened, Of: x.Kind, Token: Token(x.Token), Name: []byte(l.key.name)})
	t.grant(l)
	return status(fsmpb.Result_OK)
}
