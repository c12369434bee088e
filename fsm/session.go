package fsm

import (
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// openSession makes a session, hot under the current token: its creation is its first renewal. A repeated nonce answers the
// same session and renews nothing, so a client has to count from before it first sent that nonce.
func (t *txn) openSession(o *fsmpb.OpenSession) *fsmpb.Result {
	nonce := [NonceSize]byte(o.Nonce)
	if s := t.st.nonces[nonce]; s != nil {
		if s.node != o.Node || s.incarnation != o.Incarnation || s.ttl != time.Duration(o.Ttl) {
			return invalid("nonce is another session's")
		}
		return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(s.id)}
	}
	s := &session{id: t.mint(), node: o.Node, incarnation: o.Incarnation, ttl: time.Duration(o.Ttl), nonce: nonce}
	s.life = s.life.Renewed(s.id)
	t.st.add(s)
	t.touched(s)
	t.tell(Event{Kind: SessionOpened, Session: s.id})
	return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(s.id)}
}

func (t *txn) endSessions(e *fsmpb.EndSessions) *fsmpb.Result {
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Exists: make([]bool, len(e.Ids))}
	var ended []*session
	for i, id := range e.Ids {
		s := t.st.sessions[Token(id)]
		res.Exists[i] = s != nil
		if s != nil && !s.ended {
			s.ended = true // named twice, it still ends once
			ended = append(ended, s)
		}
	}
	res.Revision = t.end(ended, e.Expired)
	return res
}

// endFormer ends the oldest sessions of a node's former incarnations, up to maxFormer, and says whether there are more: one entry must not hold
// up the shard for all of very many.
func (t *txn) endFormer(e *fsmpb.EndFormer) *fsmpb.Result {
	var ended []*session
	more := false
	if m := t.st.members[e.Node]; m != nil {
		for s := range m.sessions.all {
			if s.incarnation >= e.Incarnation {
				continue
			}
			if more = len(ended) == maxFormer; more {
				break
			}
			ended = append(ended, s)
		}
	}
	rev := t.end(ended, true)
	return &fsmpb.Result{Status: fsmpb.Result_OK, Revision: rev, Exists: []bool{more}}
}

// end ends sessions in two steps. First all of them and everything that hangs on them are gone, records too, and only then are
// the freed names granted: no session of the batch can be granted what another of the batch held.
// What a holder died on stays closed for its grace, not what it gave back. The result is the revision under which records went.
func (t *txn) end(ended []*session, expired bool) uint64 {
	why := Unlocked
	if expired {
		why = Expired
	}
	var freed []*lock
	for _, s := range ended {
		s.ended = true
		for _, c := range s.refs {
			t.leave(c, why)
			freed = append(freed, c.locks...)
		}
		s.refs = nil
		for _, r := range s.results {
			t.unset(t.sp.pair(t.key[:0], kindResult, uint64(s.id), r.seq))
		}
		t.unset(t.sp.number(t.key[:0], kindSession, uint64(s.id)))
		t.tell(Event{Kind: SessionEnded, Session: s.id, Expired: expired})
	}
	rev := t.deleteEphemeral(ended)
	t.st.remove(ended)
	slices.SortFunc(freed, func(a, b *lock) int { return a.key.compare(b.key) })
	freed = slices.Compact(freed)
	for _, l := range freed {
		l.purge()
	}
	for _, l := range freed {
		t.grant(l)
	}
	return rev
}

// renew makes sessions hot under the current claim's token.
func (t *txn) renew(ids []uint64) *fsmpb.Result {
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Exists: make([]bool, len(ids))}
	heard := t.mint()
	for i, id := range ids {
		s := t.st.sessions[Token(id)]
		if s == nil {
			continue
		}
		res.Exists[i] = true
		s.life = s.life.Renewed(heard)
		t.touched(s)
	}
	return res
}

// checkpoint makes sessions cold and records their silence, if the log has not heard of them since that was measured.
func (t *txn) checkpoint(silences []*fsmpb.Checkpoint_Silence) *fsmpb.Result {
	res := &fsmpb.Result{Status: fsmpb.Result_OK, Exists: make([]bool, len(silences))}
	heard := t.mint()
	for i, c := range silences {
		s := t.st.sessions[Token(c.Id)]
		if s == nil {
			continue
		}
		res.Exists[i] = true
		life, ok := s.life.Checkpointed(Token(c.Heard), heard, time.Duration(c.Silence), s.ttl)
		if ok {
			s.life = life
			t.touched(s)
		}
	}
	return res
}

// acknowledge raises the session's low-water mark and forgets the results at or below it.
func (t *txn) acknowledge(s *session, low uint64) {
	if low <= s.low {
		return
	}
	s.low = low
	t.touched(s)
	n := 0
	for ; n < len(s.results) && s.results[n].seq <= low; n++ {
		t.unset(t.sp.pair(t.key[:0], kindResult, uint64(s.id), s.results[n].seq))
	}
	s.results = slices.Delete(s.results, 0, n)
}

// remember stores the result of an operation, in place of a former one.
func (t *txn) remember(s *session, seq uint64, res *fsmpb.Result) {
	if i, ok := s.find(seq); ok {
		s.results[i].result = res
	} else {
		s.results = slices.Insert(s.results, i, remembered{seq, res})
	}
	t.val = appendResult(t.val[:0], res)
	t.set(t.sp.pair(t.key[:0], kindResult, uint64(s.id), seq))
}

// update changes the result of an operation that waited, if it is still remembered.
func (t *txn) update(s *session, seq uint64, res *fsmpb.Result) {
	if _, ok := s.find(seq); ok {
		t.remember(s, seq, res)
	}
}
