package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A machine that was suspended, so that timers stood still while the time since boot went on, is told by the first thing that it does: every kind of
// hold reports lost, and nothing that depends on one succeeds, before any timer or message has said so: case 122.
func TestCase122_SuspendIsNoticedAtOnce(t *testing.T) {
	const asleep = 10 * time.Minute
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(time.Minute)}, func(t *testing.T, c *nodetest.Cluster) {
		for _, owns := range []bool{true, false} {
			i := c.AwaitOwner(1)
			if !owns {
				i = (i + 1) % 3
			}
			ctx, s := t.Context(), c.Node(i).ShardAt(1)
			p, err1 := s.Semaphore(ctx, "p", 1, nil)
			e, err2 := s.Campaign(ctx, "e", nil)
			x, err3 := s.Session(ctx, 3*time.Second)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			holds := map[string]node.Hold{
				"Lock": mustLock(t, s, "l"), "LockOwnSession": lockFor(t, s, "o", 3*time.Second), "Permit": p, "Leadership": e, "Session": x,
			}
			if o, ok := s.Owned(); ok {
				holds["Ownership"] = o
			}
			began := time.Now()
			c.StepClock(i, asleep)
			for name, h := range holds {
				wantErr(t, name+": check", h.Check(), node.ErrLost)
				if l, ok := h.(*node.Lock); ok {
					wantErr(t, name+": unlock", l.Unlock(ctx), node.ErrLost)
				}
			}
			if _, ok := s.Owned(); ok {
				t.Error("an ownership is trusted after the suspend")
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("the checks waited %v", took)
			}
			time.Sleep(time.Millisecond)
			for name, h := range holds {
				if !isDone(h) {
					t.Errorf("%s: not done", name)
				}
			}
			c.AwaitReady()
			time.Sleep(2 * time.Minute) // all that was held has ended
		}
	})
}
