package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/raft"
)

// takeoverBound is how long a shard may be without an owner, and so without anybody who ends its sessions, while its leader cannot own it: five
// election timeouts, the last claim, the change of leaders, and the next claim.
const takeoverBound = 12 * time.Second

// claims has f stand in for each claim that node i proposes.
func (h *holes) claims(i int, f func(next func() error) error) {
	h.gates[i].proposals(func(e *fsmpb.Entry, next func() error) error {
		if e.GetClaim() == nil {
			return next()
		}
		return f(next)
	})
}

// works lets node i do everything again.
func (h *holes) works(i int) {
	h.gates[i].proposals(nil)
	h.gates[i].reads(nil)
}

// longestWithoutOwner watches shard 1 for d.
func (h *holes) longestWithoutOwner(d time.Duration) (longest time.Duration) {
	since := time.Now()
	for began := since; time.Since(began) < d; time.Sleep(20 * time.Millisecond) {
		if h.Owner(1) >= 0 {
			since = time.Now()
		}
		longest = max(longest, time.Since(since))
	}
	return longest
}

// A leader that cannot become the owner tries again and again, and then gives the leadership away: another owns the shard within a bound, and ends
// what a dead holder left. Stats and Status say so. The sick node does not take the shard down over and over, and gets it back when it is well: case 43.
func TestCase043_LeaderThatCannotOwnGivesUp(t *testing.T) {
	refused := errors.New("refused")
	for name, sicken := range map[string]func(h *holes, i int){
		"ClaimsDropped": func(h *holes, i int) { h.claims(i, func(func() error) error { return raft.ErrNotAppended }) },
		"ClaimsUnknown": func(h *holes, i int) { h.claims(i, func(func() error) error { return raft.ErrOutcomeUnknown }) },
		"ClaimsLate": func(h *holes, i int) {
			h.claims(i, func(next func() error) error {
				err := next()
				time.Sleep(ownerLease)
				return err
			})
		},
		"ReadsFail": func(h *holes, i int) { h.gates[i].reads(func(func() error) error { return refused }) },
	} {
		t.Run(name, func(t *testing.T) {
			inHoles(t, sessionTTL(2*time.Second), func(t *testing.T, h *holes) {
				caller := h.Add(func(c *node.Config) { c.NoReplicas = true })
				h.AwaitReady()
				sick := h.AwaitOwner(1)
				mustLock(t, h.Node(caller).ShardAt(1), "l")
				before := h.Node(sick).Stats().ClaimsFailed
				sicken(h, sick)
				h.StepClock(sick, ownerLease) // it leads on, and has to claim again
				began := time.Now()
				h.Isolate(caller)
				h.Await("another owner", func() bool { i := h.Owner(1); return i >= 0 && i != sick })
				if took := time.Since(began); took > takeoverBound {
					t.Errorf("no other owner for %v, want %v at most", took, takeoverBound)
				}
				if got := h.Node(sick).Status().Shards[1].Unable; got == "" {
					t.Error("the status of the sick node does not say that it could not own the shard")
				}
				mustLock(t, h.Node((sick+1)%3).ShardAt(1), "l")
				if took := time.Since(began); took > takeoverBound+4*time.Second {
					t.Errorf("the lock of a dead holder was free after %v", took)
				}
				if got := h.longestWithoutOwner(time.Minute); got > takeoverBound {
					t.Errorf("no owner for %v, want %v at most", got, takeoverBound)
				}
				st := h.Node(sick).Stats()
				st.ClaimsFailed -= before
				if st.LeadershipsGivenUp < 1 || st.LeadershipsGivenUp > 3 {
					t.Errorf("leaderships given up in a minute: got %d, want 1 to 3", st.LeadershipsGivenUp)
				}
				if st.ClaimsFailed < 3*st.LeadershipsGivenUp || st.ClaimsFailed > 20*st.LeadershipsGivenUp {
					t.Errorf("got %d failed claims for %d leaderships given up, want 3 to 20 each", st.ClaimsFailed, st.LeadershipsGivenUp)
				}
				h.works(sick)
				h.Heal()
				for began := time.Now(); h.Owner(1) != sick && time.Since(began) < 5*time.Minute; {
					time.Sleep(time.Second)
				}
				if h.Owner(1) != sick {
					t.Error("the preferred node did not get the shard back when it was well")
				}
				if got := h.Node(sick).Status().Shards[1].Unable; got != "" {
					t.Errorf("status of the owner: got %q, want that it is able", got)
				}
			})
		})
	}
}

// A leader whose claims fail three times tries again after longer pauses each time, and owns the shard then: it gives nothing away: case 43.
func TestCase043_ThreeFailuresAreOutlasted(t *testing.T) {
	inHoles(t, nil, func(t *testing.T, h *holes) {
		i := h.AwaitOwner(1)
		before := h.Node(i).Stats()
		var at []time.Time // touched by one goroutine, the claimer, until it owns
		h.claims(i, func(next func() error) error {
			if at = append(at, time.Now()); len(at) <= 3 {
				return raft.ErrNotAppended
			}
			return next()
		})
		h.StepClock(i, ownerLease)
		lapsed := time.Now()
		h.AwaitOwnedBy(1, i)
		if took := time.Since(lapsed); took > time.Second {
			t.Errorf("no owner for %v, want 1 s at most", took)
		}
		if len(at) != 4 {
			t.Fatalf("got %d claims, want 4", len(at))
		}
		for k := 2; k < len(at); k++ {
			if was, is := at[k-1].Sub(at[k-2]), at[k].Sub(at[k-1]); is < was*3/2 {
				t.Errorf("pauses of %v and then %v, want them to grow", was, is)
			}
		}
		if st := h.Node(i).Stats(); st.ClaimsFailed-before.ClaimsFailed != 3 || st.LeadershipsGivenUp != 0 {
			t.Errorf("got %d failed claims and %d leaderships given up, want 3 and 0", st.ClaimsFailed-before.ClaimsFailed, st.LeadershipsGivenUp)
		}
	})
}

// When no node can own the shard the leadership goes round, each node gets its turn, and the first that is well again owns it: case 43.
func TestCase043_NobodyCanOwn(t *testing.T) {
	inHoles(t, nil, func(t *testing.T, h *holes) {
		i := h.AwaitOwner(1)
		for k := range 3 {
			h.claims(k, func(func() error) error { return raft.ErrNotAppended })
		}
		h.StepClock(i, ownerLease)
		time.Sleep(time.Minute)
		for k := range 3 {
			if got := h.Node(k).Stats().LeadershipsGivenUp; got == 0 {
				t.Errorf("node %d gave up no leadership in a minute", k)
			}
		}
		well := (i + 2) % 3
		h.works(well)
		began := time.Now()
		h.Await("an owner", func() bool { return h.Owner(1) == well })
		if took := time.Since(began); took > 3*takeoverBound {
			t.Errorf("no owner %v after a node was well, want %v at most", took, 3*takeoverBound)
		}
	})
}
