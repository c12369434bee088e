package fsm

import "github.com/oarlock/oarlock/fsm/fsmpb"

// claim decides on a claim. A refused one changes nothing and is no error: it lost.
func (t *txn) claim(c *fsmpb.Claim) error {
	r, err := request(c)
	if err != nil {
		return err
	}
	last := t.st.claim
	if !last.Accepts(r) {
		t.out.Claim = &ClaimResult{Current: last}
		return nil
	}
	minted := last.Token
	if !r.Keep {
		minted = t.mint()
		for s := range t.st.order.all {
			// Only what changes is written: of very many sessions it would take longer than the claim's lease, and nobody ever own the shard.
			if life := s.life.Claimed(last.Token, r.Waited, s.ttl); life != s.life {
				s.life = life
				t.touched(s)
			}
		}
	}
	t.setClaim(last.After(r, minted))
	t.out.Claim = &ClaimResult{Accepted: true, Current: t.st.claim}
	t.tell(Event{Kind: Claimed, Token: t.st.claim.Token})
	return nil
}

// release records the silences and ends the claim: no stamp is accepted until the next one.
func (t *txn) release(r *fsmpb.Release) *fsmpb.Result {
	res := t.checkpoint(r.Sessions)
	c := t.st.claim
	c.Released = true
	t.setClaim(c)
	t.tell(Event{Kind: Released, Token: c.Token})
	return res
}

// raise raises the cluster's version, never lowers it. That this machine knows the version was checked before.
func (t *txn) raise(version uint32) *fsmpb.Result {
	if version > t.st.counters.version {
		t.st.counters.version = version
		t.tell(Event{Kind: Raised})
	}
	return status(fsmpb.Result_OK)
}

func (t *txn) setClaim(c Claim) {
	t.st.claim = c
	t.val = appendClaim(t.val[:0], c)
	t.set(t.sp.start(t.key[:0], kindClaim))
}
