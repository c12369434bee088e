package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// patientSessions makes sessions outlast everything that a test does, and calls give up after a second.
func patientSessions(_ int, c *node.Config) {
	c.SessionTTL, c.RequestTimeout = 2*time.Minute, time.Second
}

// A run that nobody holds a handle of any more is given back although its node and session live on, however RunOnce ended: its ctx ended while fn went on, its
// record or its release found no majority, or fn panicked. The next caller runs the job, or finds it recorded (cases 18 and 45).
func TestShard_RunOnce_LeavesNothing(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: patientSessions}, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s, other := c.Node(i).ShardAt(1), c.Node(owner).ShardAt(1)
		mustPut(t, s, "warm", "up")
		for name, tt := range map[string]struct {
			fn   func(cancel context.CancelFunc) error
			want error
		}{
			"NoRecord":  {func(context.CancelFunc) error { c.Isolate(i); return nil }, node.ErrUnknown},
			"Cancelled": {func(cancel context.CancelFunc) error { c.Isolate(i); cancel(); return nil }, node.ErrUnknown},
			"NoRelease": {func(context.CancelFunc) error { c.Isolate(i); return errGivenUp }, errGivenUp},
			"Panic":     {func(context.CancelFunc) error { c.Isolate(i); panic("planted") }, nil},
		} {
			func() {
				defer func() {
					if r := recover(); name == "Panic" != (r != nil) {
						t.Errorf("%s: recovered %v", name, r)
					}
				}()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, err := s.RunOnce(ctx, name, nil, func(context.Context, *node.Run) ([]byte, error) { return nil, tt.fn(cancel) })
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s: got %v, want %v", name, err, tt.want)
				}
			}()
			c.Heal()
			_, err := other.RunOnce(within(t, 5*time.Second), name, nil, func(context.Context, *node.Run) ([]byte, error) { return nil, nil })
			if err != nil && !(errors.Is(tt.want, node.ErrUnknown) && errors.Is(err, node.ErrAlreadyDone)) {
				t.Errorf("%s: the next run: %v", name, err)
			}
		}
	})
}

// A leadership that Lead could not give back is given back later, although node and session live on: then Lead leads again, and does not wait behind
// itself (case 18).
func TestShard_Lead_LeavesNothing(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: patientSessions}, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		runs := 0
		done := make(chan error, 1)
		go func() { // stops when fn returned nil
			done <- c.Node(i).ShardAt(1).Lead(t.Context(), "e", func(context.Context, *node.Leadership) error {
				if runs++; runs == 1 {
					c.Isolate(i)
					return errGivenUp
				}
				return nil
			})
		}()
		time.Sleep(5 * time.Second)
		c.Heal()
		select {
		case err := <-done:
			if err != nil || runs != 2 {
				t.Errorf("lead: got %v after %d runs, want nil after 2", err, runs)
			}
		case <-time.After(30 * time.Second):
			t.Error("lead waits behind its own former leadership")
		}
	})
}

// A lock whose holder could not tell the owner that it knows of its grant is free after MaxHold all the same, although its session lives on.
func TestLockOptions_MaxHold_OwnerNeverHeard(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: patientSessions}, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(i).ShardAt(1)
		l, err := s.Lock(t.Context(), "x", &node.LockOptions{MaxHold: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.Track("x", l)
		c.Isolate(i) // at the instant of the grant: nothing was sent yet
		time.Sleep(10 * time.Second)
		wantErr(t, "check after MaxHold", l.Check(), node.ErrLost)
		c.Heal()
		next, err := c.Node(owner).ShardAt(1).Lock(within(t, 5*time.Second), "x", nil)
		if err != nil {
			t.Fatalf("lock after MaxHold: %v", err)
		}
		c.Track("x", next)
		time.Sleep(time.Second)
		if got := node.Holds(c.Node(i), 1); got != 0 {
			t.Errorf("grants at the former holder's session: got %d, want 0", got)
		}
	})
}

// What ended against its holder's will leaves nothing at its session, though it is never unlocked.
func TestShard_ForceRelease_LeaksNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		s := c.Node(i).ShardAt(1)
		keep := mustLock(t, s, "keep")
		for n := range 20 {
			l, err := s.Lock(t.Context(), "x", &node.LockOptions{MaxHold: time.Duration(n%2) * 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 {
				if err := s.ForceRelease(t.Context(), "x", l.Token()); err != nil {
					t.Fatal(err)
				}
			}
			<-l.Done()
		}
		time.Sleep(time.Second)
		if got := node.Holds(c.Node(i), 1); got != 1 || keep.Check() != nil {
			t.Errorf("grants at the session: got %d, want 1, which is held: %v", got, keep.Check())
		}
	})
}

// An Unlock of a lock that was taken away, by a holder that has not heard of it yet, is ErrLost and not nil: what it did may have been done beside another.
func TestLock_Unlock_TakenAwayUnheard(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		k := others(c, owner, i)[0]
		l := mustLock(t, c.Node(i).ShardAt(1), "x")
		c.Drop(owner, i) // its calls go by the third node, but for those that wait already
		if err := c.Node(k).ShardAt(1).ForceRelease(t.Context(), "x", l.Token()); err != nil {
			t.Fatal(err)
		}
		next := mustLock(t, c.Node(k).ShardAt(1), "x")
		if err := l.Check(); err != nil {
			t.Fatalf("the holder has heard: %v: the test tests nothing", err)
		}
		wantErr(t, "unlock", l.Unlock(within(t, 10*time.Second)), node.ErrLost)
		wantErr(t, "unlock again", l.Unlock(t.Context()), node.ErrNotHeld)
		if err := next.Check(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// A Transfer that names no node is refused and changes nothing: the leader leads on.
func TestLeadership_Transfer_Invalid(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		l, err := s.Campaign(t.Context(), "e", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"", string(make([]byte, 256)), "\xff"} {
			wantErr(t, fmt.Sprintf("transfer to %.5q", to), l.Transfer(within(t, time.Second), to), node.ErrInvalid)
		}
		if err := l.Check(); err != nil {
			t.Errorf("check after it: %v", err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Errorf("resign: %v", err)
		}
	})
}

// What hangs on a session ends with it: with ErrNotHeld by Check, Done, Context and release alike when it was closed, which gives everything back, and with ErrLost when it
// was lost. It does not end with the implicit session, and new calls through the view are refused, also one that waits (case 3).
func TestShard_In_EndsWithItsSession(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(5 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		s, other := c.Node(i).ShardAt(1), c.Node(c.AwaitOwner(1)).ShardAt(1)
		for _, lose := range []bool{false, true} {
			want := node.ErrNotHeld
			if lose {
				want = node.ErrLost
			}
			x, err := s.Session(t.Context(), 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			view := s.In(x)
			holds := map[string]held{}
			for _, k := range kindsOfHolds() {
				if k.name == "OwnSession" || k.name == "Session" {
					continue
				}
				if holds[k.name], err = k.acquire(t.Context(), view, k.name); err != nil {
					t.Fatalf("%s: %v", k.name, err)
				}
			}
			implicit := mustLock(t, s, "implicit")
			mustLock(t, other, fmt.Sprint("elsewhere", lose))
			waits := make(chan error, 1)
			go func() { // stops with the session
				_, err := view.Lock(t.Context(), fmt.Sprint("elsewhere", lose), nil)
				waits <- err
			}()
			time.Sleep(time.Second)
			if lose {
				c.Isolate(i)
				<-x.Done()
				time.Sleep(200 * time.Millisecond) // Done comes a little early
				c.Heal()
			} else if err := x.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "a call that waits", <-waits, node.ErrLost)
			for name, h := range holds {
				wantErr(t, name+": check", h.Check(), want)
				if cause := context.Cause(h.Context(t.Context())); !isDone(h) || !errors.Is(cause, want) {
					t.Errorf("%s: done %v, cause %v, want %v", name, isDone(h), cause, want)
				}
				if h.copied != nil {
					wantErr(t, name+": release", h.release(t.Context()), want)
				} else if err := h.release(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := implicit.Unlock(t.Context()); err != nil {
				t.Errorf("the hold on the implicit session: %v", err)
			}
			_, err = view.Put(t.Context(), "k", nil, nil)
			wantErr(t, "put through the view", err, node.ErrLost)
			_, err = view.TryLock(t.Context(), "y", nil)
			wantErr(t, "lock through the view", err, node.ErrLost)
			wantErr(t, "lead through the view", view.Lead(t.Context(), "e", func(context.Context, *node.Leadership) error { return nil }), node.ErrLost)
			for _, k := range kindsOfHolds() {
				if _, ok := holds[k.name]; ok && k.name != "TryLock" {
					h, err := k.acquire(within(t, 5*time.Second), other, k.name)
					if err != nil {
						t.Errorf("%s after the session: %v", k.name, err)
					} else if err := h.release(t.Context()); err != nil {
						t.Errorf("%s: release: %v", k.name, err)
					}
				}
			}
		}
		x, err := s.Session(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.In(x).Lock(t.Context(), "y", &node.LockOptions{TTL: time.Second})
		wantErr(t, "a session of its own in the view of another", err, node.ErrInvalid)
		_, err = other.In(x).Put(t.Context(), "k", nil, nil)
		wantErr(t, "a session of another node", err, node.ErrInvalid)
	})
}
