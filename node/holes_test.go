package node_test

import (
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/raft"
)

// Each test here drives real nodes along a trace on which the model (node/internal/owner) breaks a guarantee when one rule is taken out.

// A leader whose lease lapsed while Raft kept it becomes the owner again, in the same term and with a new token: a state machine that
// asked for a newer term would leave the shard without an owner for as long as its leader is well.
func TestHole_LapsedOwnerStaysLeader(t *testing.T) {
	for name, lapse := range map[string]func(h *holes, i int){
		"Suspended": func(h *holes, i int) { h.StepClock(i, ownerLease) },
		"ReadsHang": func(h *holes, i int) {
			until := time.Now().Add(ownerLease + 100*time.Millisecond)
			h.gates[i].reads(func(next func() error) error {
				time.Sleep(time.Until(until))
				return next()
			})
			time.Sleep(ownerLease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHoles(t, nil, func(t *testing.T, h *holes) {
				i := h.AwaitOwner(1)
				o, term := h.owned(i), h.term(i)
				lapse(h, i)
				wantErr(t, "the ownership after its lease", o.Check(), node.ErrLost)
				lapsed := time.Now()
				h.AwaitOwnedBy(1, i)
				if took := time.Since(lapsed); took > 500*time.Millisecond {
					t.Errorf("no owner for %v, want 500 ms at most", took)
				}
				if h.term(i) != term {
					t.Errorf("term %d became %d: the leader changed, and the trace was not taken", term, h.term(i))
				}
				if got := h.owned(i).Token(); got <= o.Token() {
					t.Errorf("got token %d after %d", got, o.Token())
				}
			})
		})
	}
}

// A claim that its proposer made as the leader and that reached the log through the next one is accepted, and makes nobody the owner:
// the proposer leads no more. The next leader waits for the lease in it, and owns then.
func TestHole_ForwardedStaleClaim(t *testing.T) {
	inHoles(t, nil, func(t *testing.T, h *holes) {
		a := h.AwaitOwner(1)
		b := (a + 1) % 3
		old := h.owned(a).Token()
		stale, next := newStopped(), newStopped()
		answered := make(chan error, 1)
		h.gates[a].proposals(func(e *fsmpb.Entry, next func() error) error {
			if e.GetClaim() == nil {
				return next()
			}
			stale.hold(e)
			err := next()
			select {
			case answered <- err:
			default:
			}
			return err
		})
		h.gates[b].proposals(func(e *fsmpb.Entry, propose func() error) error {
			next.hold(e)
			return propose()
		})
		h.StepClock(a, ownerLease) // it leads on, and claims again
		stale.await(t, "claim of the lapsed owner")
		h.transfer(a, b)
		stale.release()
		if err := <-answered; err != nil {
			t.Fatalf("the forwarded claim: %v", err)
		}
		claimed := h.claimed(a)
		if claimed <= old {
			t.Fatalf("the last claim has token %d, want more than %d: the stale claim was not accepted, and the trace was not taken", claimed, old)
		}
		h.notOwner(a, ownerLease)
		next.release()
		h.AwaitOwnedBy(1, b)
		if got := h.owned(b).Token(); got <= claimed {
			t.Errorf("got token %d after %d", got, claimed)
		}
	})
}

// A claim whose outcome was not known, and that is applied while the next attempt is under way, is not credited to that attempt: its lease
// counts from before its own proposal, which nobody remembers. The claimer reads it, and claims once more.
func TestHole_RetriedClaimCreditedLate(t *testing.T) {
	inHoles(t, nil, func(t *testing.T, h *holes) {
		a := h.AwaitOwner(1)
		first, second := newStopped(), newStopped()
		claims := 0 // touched by one goroutine, the claimer
		h.gates[a].proposals(func(e *fsmpb.Entry, next func() error) error {
			if e.GetClaim() == nil {
				return next()
			}
			switch claims++; claims {
			case 1:
				first.entry = e
				close(first.arrived)
				return raft.ErrOutcomeUnknown
			case 2:
				second.hold(e)
			}
			return next()
		})
		h.StepClock(a, ownerLease)
		first.await(t, "claim")
		second.await(t, "second claim")
		h.late(a, first.entry)
		credited := h.claimed(a)
		h.notOwner(a, 100*time.Millisecond)
		second.release()
		h.AwaitOwnedBy(1, a)
		if got := h.owned(a).Token(); got <= credited {
			t.Errorf("owns with token %d, which a claim before its own got: want a larger one", got)
		}
	})
}

// A confirmation that is in flight when the ownership ends, and comes back good, revives nothing: the next owner does not wait for a
// released lease.
func TestHole_LeaseRevivedByConfirmation(t *testing.T) {
	inHoles(t, nil, func(t *testing.T, h *holes) {
		a := h.AwaitOwner(1)
		n, o := h.Node(a), h.owned(a)
		confirmation, release := newStopped(), newStopped()
		returned := make(chan error, 1)
		h.gates[a].reads(func(next func() error) error {
			select {
			case <-confirmation.arrived:
				return next() // the others are not held
			default:
			}
			err := next()
			confirmation.hold(nil)
			returned <- err
			return err
		})
		h.gates[a].proposals(func(e *fsmpb.Entry, next func() error) error {
			release.hold(e)
			return next()
		})
		confirmation.await(t, "confirmation")
		down := make(chan error, 1)
		go func() { down <- n.Shutdown(within(t, 30*time.Second)) }() // stops when the node is shut down
		release.await(t, "release")
		wantErr(t, "the ownership that is being released", o.Check(), node.ErrLost)
		confirmation.release()
		if err := <-returned; err != nil {
			t.Fatalf("the read in flight failed, and the trace was not taken: %v", err)
		}
		h.notOwner(a, 20*time.Millisecond)
		if !h.leads(a) {
			t.Error("the leader changed: the trace was not taken")
		}
		wantErr(t, "the ownership after the confirmation", o.Check(), node.ErrLost)
		release.release()
		wantErr(t, "shutdown", <-down, nil)
		h.Close(a)
		h.AwaitOwner(1)
	})
}

// The next owner waits for the lease that is written in the last claim, not for its own setting: nodes may be configured differently,
// and the former owner, cut off, trusts its own.
func TestHole_MixedLeases(t *testing.T) {
	const short = 100 * time.Millisecond
	leases := func(i int, c *node.Config) {
		if c.OwnerLease = short; i == 0 {
			c.OwnerLease = time.Second
		}
	}
	inHoles(t, leases, func(t *testing.T, h *holes) {
		if i := h.AwaitOwner(1); i != 0 {
			h.transfer(i, 0)
			h.AwaitOwnedBy(1, 0)
		}
		o := h.owned(0)
		h.transfer(0, 1)
		h.Isolate(0)
		cut := time.Now()
		time.Sleep(4 * short)
		if err := o.Check(); err != nil {
			t.Fatalf("the former owner trusts its lease no more: %v; the trace was not taken", err)
		}
		h.AwaitOwnedBy(1, 1) // the cluster checks that they are not both trusted
		wantErr(t, "the former owner", o.Check(), node.ErrLost)
		if took := time.Since(cut); took < 800*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("the next owner came after %v, want it right after the lease of 1 s", took)
		}
	})
}

// From proposing a checkpoint on, a session is renewed through the log, behind it. A renewal in memory would be answered, and the next owner,
// which reads the checkpoint and knows of no renewal, would end the session while its holder trusts it.
func TestHole_CheckpointInFlight(t *testing.T) {
	const ttl = 4 * time.Second
	inHoles(t, sessionTTL(ttl), func(t *testing.T, h *holes) {
		a := h.AwaitOwner(1)
		b, holder := (a+1)%3, (a+2)%3
		l := mustLock(t, h.Node(holder).ShardAt(1), "l")
		h.Track("l", l)
		next := make(chan *node.Lock, 1)
		go func() { // stops when the lock is granted
			x, err := h.Node(b).ShardAt(1).Lock(within(t, time.Minute), "l", nil)
			if err == nil {
				h.Track("l", x)
			}
			next <- x
		}()
		time.Sleep(2 * ttl) // both sessions are hot
		checkpoint := newStopped()
		h.gates[a].proposals(func(e *fsmpb.Entry, next func() error) error {
			for _, op := range e.GetBatch().GetOps() {
				if op.GetCheckpoint() != nil {
					checkpoint.hold(e)
					return raft.ErrOutcomeUnknown
				}
			}
			return next()
		})
		h.Isolate(holder)
		checkpoint.await(t, "checkpoint")
		h.Heal()
		time.Sleep(500 * time.Millisecond) // the holder asks for its renewal, more than once
		h.Isolate(holder)
		h.transfer(a, b)
		h.late(b, checkpoint.entry)
		h.AwaitOwnedBy(1, b)
		checkpoint.release()
		x := <-next // the cluster checks that they are not both trusted
		if x == nil {
			t.Fatal("the waiter did not get the lock")
		}
		wantErr(t, "the lock of the holder that was cut off", l.Check(), node.ErrLost)
	})
}
