package node_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node"
)

// sizes are the largest entries that were proposed.
type sizes struct {
	mu              sync.Mutex // guards the fields below
	bytes, sessions int
}

func (z *sizes) note(e *fsmpb.Entry) {
	sessions := 0
	for _, op := range e.GetBatch().GetOps() {
		if op.GetRelease() != nil {
			return // the last entry of an owner: nothing waits behind it but the next one
		}
		sessions += len(op.GetRenew().GetIds()) + len(op.GetCheckpoint().GetSessions()) + len(op.GetEndSessions().GetIds())
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.bytes, z.sessions = max(z.bytes, proto.Size(e)), max(z.sessions, sessions)
}

// 5,000 sessions of one shard are renewed, survive a change of owner, all go through the log once and end for silence: no entry but a
// release is on more than 256 of them or larger than 32 KiB, a put never waits behind more than a few of those, and none is lost before its time.
func TestSession_Thousands(t *testing.T) {
	const ttl, workers = 10 * time.Second, 50
	count := underRace(5000, 1000)
	var z sizes
	inHoles(t, nil, func(t *testing.T, h *holes) {
		holder := caller(h.Cluster)
		owner := h.AwaitOwner(1)
		s := h.Node(holder).ShardAt(1)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() { // stops when its part is opened
				for range count / workers {
					if _, err := s.Session(t.Context(), ttl); err != nil {
						t.Errorf("open session: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range 3 {
			h.gates[i].proposals(func(e *fsmpb.Entry, next func() error) error {
				z.note(e)
				return next()
			})
		}
		other := h.Node((owner + 1) % 3).ShardAt(1)
		puts := func(what string, d, most time.Duration) {
			t.Helper()
			var slowest time.Duration
			for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
				at := time.Now()
				mustPut(t, other, "k", "v")
				slowest = max(slowest, time.Since(at))
			}
			if slowest > most {
				t.Errorf("while sessions are %s: a put took %v, want %v at most", what, slowest, most)
			}
		}
		puts("renewed in memory", ttl/2, 50*time.Millisecond)
		node.Depose(h.Node(owner), 1, h.Node((owner+1)%3).ID()) // nobody has told the next owner of any silence
		h.AwaitOwnedBy(1, (owner+1)%3)
		puts("renewed through the log", ttl, 200*time.Millisecond) // the shard is handed back meanwhile
		h.AwaitOwnedBy(1, owner)
		if st := h.Node(holder).Stats(); st.Sessions < count || st.SessionsLost != 0 {
			t.Errorf("after the change of owners: got %d sessions and %d lost, want %d and none", st.Sessions, st.SessionsLost, count)
		}
		h.Isolate(holder)
		puts("ended", ttl*3/2, 50*time.Millisecond)
		if got := total(h.Cluster, expired); int(got) < count {
			t.Errorf("sessions ended: got %d, want %d", got, count)
		}
	})
	if z.sessions > 256 || z.sessions < 100 || z.bytes > 32<<10 {
		t.Errorf("the largest entries are on %d sessions and of %d bytes, want 100 to 256 and 32 KiB at most", z.sessions, z.bytes)
	}
}
