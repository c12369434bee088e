package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// queue lists the values of those who wait for a lock, first come first.
func queue(t *testing.T, s *node.Shard, name string) []string {
	t.Helper()
	for info, err := range s.Locks(within(t, 10*time.Second), name) {
		if err != nil {
			t.Fatalf("list locks: %v", err)
		}
		if info.Name != name {
			continue
		}
		if info.Waiting != len(info.Waiters) {
			t.Errorf("%d wait, and %d are listed", info.Waiting, len(info.Waiters))
		}
		var values []string
		for _, w := range info.Waiters {
			values = append(values, string(w.Value))
		}
		return values
	}
	return nil
}

// A waiter waits for a lock under its own name as value.
type waiter struct {
	name string
	at   int
	end  func() // makes it give up; nil: it stays, or goes with its node
	err  error
	lock *node.Lock
	done chan struct{}
}

// newWaiter makes the n-th waiter, at a node, to be hit by one kind of failure.
func newWaiter(t *testing.T, c *nodetest.Cluster, n, at int, fate string) *waiter {
	w := &waiter{name: fmt.Sprintf("%03d-%s", n, fate), at: at, done: make(chan struct{})}
	s := c.Node(at).ShardAt(1)
	ctx, cancel := context.WithCancel(t.Context())
	o := &node.LockOptions{Value: []byte(w.name)}
	switch fate {
	case "cancel":
		w.end = cancel
	case "deadline":
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	case "wait":
		o.Wait = 20 * time.Second
	case "session":
		x, err := s.Session(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s, w.end = s.In(x), func() {
			if err := x.Close(t.Context()); err != nil {
				t.Errorf("close session: %v", err)
			}
		}
	case "own": // with a session of its own
		o.TTL, w.end = 10*time.Second, cancel
	}
	go func() { // stops when the lock is granted or given up
		defer close(w.done)
		defer cancel()
		w.lock, w.err = s.Lock(ctx, "l", o)
	}()
	return w
}

// A hundred waiters at all nodes, of which most are hit by a failure, each kind among them: their ctx is cancelled or ends, LockOptions.Wait ends, their session ends, their
// node is closed or killed, or the shard's leader changes. After that the queue in the state machine is the living, in the order of their arrival, and each gets the
// lock within a round trip of the release before: case 19.
func TestCase019_NoGhostWaiters(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(10 * time.Second)}, func(t *testing.T, c *nodetest.Cluster) {
		for range 2 {
			c.Add(func(c *node.Config) { c.NoReplicas = true })
		}
		c.AwaitReady()
		const closed, killed = 3, 4
		owner := c.AwaitOwner(1)
		holder := c.Node(others(c, owner, closed, killed)[0]).ShardAt(1)
		first := mustLock(t, holder, "l")
		fates := []string{"stays", "cancel", "deadline", "wait", "session", "own"}
		var all []*waiter
		for n := range 100 {
			w := newWaiter(t, c, n, n%c.Len(), fates[n/c.Len()%len(fates)])
			all = append(all, w)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		var names []string
		for _, w := range all {
			names = append(names, w.name)
		}
		if got := queue(t, holder, "l"); !slices.Equal(got, names) {
			t.Fatalf("queue: got %v, want all in the order of arrival", got)
		}
		for _, w := range all {
			if w.end != nil && w.at < closed {
				w.end()
			}
		}
		c.Isolate(owner) // until another leads
		time.Sleep(4 * time.Second)
		c.Heal()
		c.AwaitReady()
		c.Close(closed)
		c.Kill(killed)
		time.Sleep(25 * time.Second) // deadlines, and the TTL of the killed node's sessions
		var live []*waiter
		names = nil
		for _, w := range all {
			if strings.HasSuffix(w.name, "stays") && w.at < closed {
				live, names = append(live, w), append(names, w.name)
				continue
			}
			<-w.done
			want := map[string]error{"cancel": context.Canceled, "deadline": context.DeadlineExceeded, "wait": node.ErrHeld, "session": node.ErrLost, "own": context.Canceled}
			switch fate := w.name[4:]; {
			case w.at >= closed:
				wantErr(t, w.name+" at a node that ended", w.err, node.ErrClosed)
			case !errors.Is(w.err, want[fate]):
				t.Errorf("%s: got %v, want %v", w.name, w.err, want[fate])
			}
		}
		if got := queue(t, holder, "l"); !slices.Equal(got, names) {
			t.Fatalf("queue: got %v, want the living: %v", got, names)
		}
		if len(live) < 10 {
			t.Fatalf("%d live: the test needs more", len(live))
		}
		l := first
		for _, w := range live {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatalf("unlock before %s: %v", w.name, err)
			}
			time.Sleep(10 * time.Millisecond)
			select {
			case <-w.done:
			default:
				t.Fatalf("%s does not have the lock a round trip after it was free", w.name)
			}
			if w.err != nil {
				t.Fatalf("%s: %v", w.name, w.err)
			}
			c.Track("l", w.lock)
			l = w.lock
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// To wait costs no polling: while fifty wait for a minute, nothing is proposed for them, and each asks its owner no more often than it must to
// learn that it is one. Many goroutines of one node wait in one queue with those of others, in the order of arrival.
func TestShard_Lock_WaitingIsQuietAndFair(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		l := mustLock(t, c.Node(owner).ShardAt(1), "l")
		stats := func() (proposals, requests uint64) {
			for _, n := range c.Nodes() {
				s := n.Stats()
				proposals, requests = proposals+s.Proposals, requests+s.RequestsSent
			}
			return proposals, requests
		}
		time.Sleep(time.Second)
		p0, r0 := stats()
		time.Sleep(time.Minute)
		p1, r1 := stats()
		const count = 50
		order := make(chan int, count)
		var wg sync.WaitGroup
		for n := range count {
			s := c.Node(n % 3).ShardAt(1)
			wg.Go(func() { // stops when it had the lock
				l, err := s.Lock(t.Context(), "l", nil)
				order <- n
				if err != nil {
					t.Errorf("waiter %d: %v", n, err)
					return
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("waiter %d: unlock: %v", n, err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		p2, r2 := stats()
		time.Sleep(time.Minute)
		p3, r3 := stats()
		if more := p3 - p2; more > p1-p0+5 {
			t.Errorf("entries proposed in a minute: got %d while %d wait, %d while none does", more, count, p1-p0)
		}
		if more := int(r3-r2) - int(r1-r0); more > count*13 {
			t.Errorf("requests in a minute because %d wait: got %d, want at most one in 5 s each", count, more)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		for want := range count {
			if got := <-order; got != want {
				t.Fatalf("granted to waiter %d, want %d", got, want)
			}
		}
		wg.Wait()
	})
}
