package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// In a cluster that is split 2 to 3 the two refuse everything: locks, swaps, permits, leaderships, runs and sessions, which also are where tokens come from; the three go on. That
// holds whichever side the owner was on, and after the split there is one history, in which no token was given twice: case 27.
func TestCase027_MinorityRefusesEverything(t *testing.T) {
	bubble(t, 5, &nodetest.Options{Replicas: 5}, func(t *testing.T, c *nodetest.Cluster) {
		h := c.History()
		tokens := map[node.Token]string{}
		for _, ownerIn := range []string{"minority", "majority"} {
			owner := c.AwaitOwner(1)
			few := others(c, owner)[:2]
			if ownerIn == "minority" {
				few = []int{owner, others(c, owner)[0]}
			}
			many := others(c, few...)
			before, err := h.Put(within(t, 10*time.Second), c.Node(few[1]).ShardAt(1), "cas", "before")
			if err != nil {
				t.Fatal(err)
			}
			c.Partition(few, many)
			time.Sleep(2 * time.Second)
			var wg sync.WaitGroup
			for _, i := range few {
				s := c.Node(i).ShardAt(1)
				for name, write := range writes(within(t, 3*time.Second), 1) {
					wg.Go(func() { // stops after 3 s
						if err := write(s); !errors.Is(err, node.ErrNoQuorum) && !errors.Is(err, node.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("owner in the %s: %s in the minority: got %v, want ErrNoQuorum, ErrUnknown or the end of its ctx", ownerIn, name, err)
						}
					})
				}
				wg.Go(func() { // stops after 3 s
					if _, err := h.CompareAndSwap(within(t, 3*time.Second), s, "cas", before, "minority"); err == nil {
						t.Errorf("owner in the %s: the minority swapped", ownerIn)
					}
				})
			}
			if _, err := h.CompareAndSwap(within(t, 20*time.Second), c.Node(many[0]).ShardAt(1), "cas", before, "majority"); err != nil {
				t.Errorf("owner in the %s: swap in the majority: %v", ownerIn, err)
			}
			for _, k := range kindsOfHolds() {
				x, err := k.acquire(within(t, 20*time.Second), c.Node(many[1]).ShardAt(1), ownerIn+k.name)
				if err != nil {
					t.Errorf("owner in the %s: %s in the majority: %v", ownerIn, k.name, err)
					continue
				}
				if tokens[x.Token()] != "" {
					t.Errorf("token %d was given to %s and to %s", x.Token(), tokens[x.Token()], k.name)
				}
				tokens[x.Token()] = k.name
			}
			wg.Wait()
			c.Heal()
			c.AwaitReady()
			time.Sleep(15 * time.Second) // what the minority's calls left is undone, or has timed out
			for i := range c.Len() {
				r, err := h.Get(within(t, 10*time.Second), c.Node(i).ShardAt(1), "cas")
				if err != nil || string(r.Value) != "majority" {
					t.Errorf("owner in the %s: node %d reads %q, %v, want what the majority wrote", ownerIn, i, r.Value, err)
				}
			}
			if l, err := c.Node(few[0]).ShardAt(1).TryLock(within(t, 10*time.Second), "free", nil); err != nil {
				t.Errorf("owner in the %s: a lock that only the minority asked for: %v", ownerIn, err)
			} else if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// When all nodes were stopped, wiped and founded anew under the same names, the handles of before fail at once, without waiting for anybody; and what they hold
// guards nothing in the new cluster, not even where its tokens happen to be the same: case 28.
func TestCase028_HandlesOfAReplacedCluster(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(i).ShardAt(1)
		old := map[string]held{}
		for _, k := range kindsOfHolds() {
			h, err := k.acquire(t.Context(), s, "x"+k.name)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			old[k.name] = h
		}
		if o, ok := c.Node(owner).ShardAt(1).Owned(); ok {
			old["Ownership"] = held{Hold: o}
		}
		session := old["Session"].Hold.(*node.Session)
		for k := range c.Len() {
			c.Close(k)
		}
		began := time.Now()
		for name, write := range writes(t.Context(), 1) {
			wantErr(t, name+" of a closed node", write(s), node.ErrClosed)
		}
		for name, h := range old {
			wantErr(t, name+": check", h.Check(), node.ErrLost)
			if h.copied != nil {
				wantErr(t, name+": release", h.release(t.Context()), node.ErrLost)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("handles of closed nodes took %v, want no waiting", took)
		}

		fresh := nodetest.New(t, 3, nil)
		fresh.AwaitReady()
		n := fresh.Node(0).ShardAt(1)
		for name, h := range old {
			for l := mustLock(t, n, "x"+name); l.Token() < h.Token(); l = mustLock(t, n, "x"+name) {
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_, err := n.Guarded(h.Hold).Put(t.Context(), "k", nil, nil)
			wantErr(t, "put guarded by an old "+name, err, node.ErrForeignCluster)
			_, err = fresh.Node(1).Shard("key").Guarded(h.Hold).Lock(t.Context(), "y", nil)
			wantErr(t, "lock guarded by an old "+name, err, node.ErrForeignCluster)
		}
		_, err := n.In(session).Put(t.Context(), "k", nil, nil)
		wantErr(t, "put in an old session", err, node.ErrInvalid)
		_, err = n.Get(t.Context(), "k")
		wantErr(t, "get", err, node.ErrNotFound)
	})
}

// Nodes that give different numbers for one semaphore are told so; a second Release gains no permit; a semaphore that shrinks while it is full grants again only once so many have
// left: case 30.
func TestCase030_PermitsAreNotOverIssued(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		a, b := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		wait := &node.LockOptions{Wait: 200 * time.Millisecond}
		var full []*node.Permit
		for n := range 3 {
			p, err := []*node.Shard{a, b}[n%2].Semaphore(ctx, "s", 3, nil)
			if err != nil {
				t.Fatalf("permit %d: %v", n, err)
			}
			full = append(full, p)
		}
		_, err := b.Semaphore(ctx, "s", 5, nil)
		wantErr(t, "another number of permits", err, node.ErrConflict)
		for _, n := range []int{0, -1, 1<<20 + 1} {
			_, err := a.Semaphore(ctx, "other", n, nil)
			wantErr(t, fmt.Sprint(n, " permits"), err, node.ErrInvalid)
			wantErr(t, fmt.Sprint("set ", n, " permits"), a.SetPermits(ctx, "s", n), node.ErrInvalid)
		}
		if err := full[0].Release(ctx); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "second release", full[0].Release(ctx), node.ErrNotHeld)
		if full[0], err = b.Semaphore(ctx, "s", 3, wait); err != nil {
			t.Fatalf("the permit that was released: %v", err)
		}
		_, err = a.Semaphore(ctx, "s", 3, wait)
		wantErr(t, "a fourth holder after a double release", err, node.ErrHeld)
		if err := a.SetPermits(ctx, "s", 1); err != nil {
			t.Fatal(err)
		}
		_, err = a.Semaphore(ctx, "s", 3, wait)
		wantErr(t, "the former number", err, node.ErrConflict)
		for left := 3; left > 0; left-- {
			_, err := b.Semaphore(ctx, "s", 1, wait)
			wantErr(t, fmt.Sprint("one permit, held by ", left), err, node.ErrHeld)
			if err := full[left-1].Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
		last, err := b.Semaphore(ctx, "s", 1, wait)
		if err != nil {
			t.Fatalf("once all had left: %v", err)
		}
		_, err = a.Semaphore(ctx, "s", 1, wait)
		wantErr(t, "a second holder", err, node.ErrHeld)
		if err := last.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Locks, elections, jobs, permits and config records live apart: whatever is put and deleted under their names, or under names that look internal, touches nothing
// that is held, and counters go on: case 32.
func TestCase032_ConfigNeverTouchesHolds(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		s, other := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		holds := map[string]held{}
		var last node.Token
		for _, k := range kindsOfHolds() {
			name := "x"
			if k.name != "Leadership" && k.name != "Run" { // those may have a lock's name
				name = "x" + k.name
			}
			h, err := k.acquire(ctx, s, name)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			holds[k.name], last = h, max(last, h.Token())
		}
		mustLock(t, s, "x")
		names := []string{"x", "\x00x", "\x01", "\x02x", "\xff", "lock/x", "locks/x", "session/1", "claim", "applied", "counters", "0", "../x", "_oarlock/x"}
		for b := range 32 {
			names = append(names, string([]byte{byte(b)}), string([]byte{byte(b), 0, 0, 0, 1, 'x'}), string([]byte{0, 0, 0, 1, byte(b)}))
		}
		for _, k := range kindsOfHolds() {
			names = append(names, "x"+k.name)
		}
		for _, name := range names {
			if _, err := other.Put(ctx, name, []byte("overwritten"), nil); err != nil {
				t.Fatalf("put %q: %v", name, err)
			}
			if r, err := other.Get(ctx, name); err != nil || string(r.Value) != "overwritten" {
				t.Errorf("get %q: got %q, %v", name, r.Value, err)
			}
			if _, err := other.Delete(ctx, name); err != nil {
				t.Fatalf("delete %q: %v", name, err)
			}
			if _, err := other.CompareAndSwap(ctx, name, 0, nil, nil); err != nil {
				t.Errorf("swap %q: %v", name, err)
			}
		}
		for name, h := range holds {
			if _, err := s.Guarded(h.Hold).Put(ctx, "k", nil, nil); err != nil || h.Check() != nil {
				t.Errorf("%s: guarded put %v, check %v", name, err, h.Check())
			}
		}
		if l := mustLock(t, s, "after"); l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
	})
}

// A lock whose holder hangs, and not its node, is lost after MaxHold and granted to the next; without MaxHold, Locks shows how old the hold is and who waits: case 33.
func TestCase033_HungHolder(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for _, at := range []int{c.AwaitOwner(1), others(c, c.AwaitOwner(1))[0]} {
			s, other := c.Node(at).ShardAt(1), c.Node(others(c, at)[0]).ShardAt(1)
			l, err := s.Lock(t.Context(), "bounded", &node.LockOptions{MaxHold: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			c.Track("bounded", l)
			began := time.Now()
			next := make(chan *node.Lock, 1)
			go func() { next <- mustLock(t, other, "bounded") }() // stops when it has the lock
			<-l.Done()
			if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
				t.Errorf("done after %v, want 5s", took)
			}
			n := <-next
			c.Track("bounded", n)
			if took := time.Since(began); took < 5*time.Second || took > 5200*time.Millisecond {
				t.Errorf("next grant after %v, want 5s and a round trip", took)
			}
			wantErr(t, "check", l.Check(), node.ErrLost)
			wantErr(t, "unlock", l.Unlock(t.Context()), node.ErrLost)
			if err := n.Check(); err != nil {
				t.Errorf("the next: %v", err)
			}
			if err := n.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s := c.Node(0).ShardAt(1)
		l := mustLock(t, s, "unbounded")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { // stops when cancelled
			_, err := c.Node(1).ShardAt(1).Lock(ctx, "unbounded", nil)
			wantErr(t, "lock behind a hung holder", err, context.Canceled)
		})
		time.Sleep(time.Minute)
		for info, err := range s.Locks(t.Context(), "unbounded") {
			if err != nil || len(info.Holders) != 1 || info.Waiting != 1 {
				t.Fatalf("locks: got %+v, %v", info, err)
			}
			if h, w := info.Holders[0], info.Waiters[0]; h.Age < time.Minute || w.Age < 50*time.Second || h.Member.Name != c.Node(0).Name() || w.Member.Name != c.Node(1).Name() {
				t.Errorf("got %+v and %+v, want a minute's age at two nodes", h, w)
			}
		}
		cancel()
		wg.Wait()
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	})
}

// Locks are not re-entrant: a second Lock under the same session waits, in another goroutine and in the same one, where its ctx bounds it; TryLock says who holds it; what one
// unlocks is its own. A process that waits for itself shows in Locks as holder and as waiter: case 158.
func TestCase158_NotReentrant(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		n := c.Node(others(c, c.AwaitOwner(1))[0])
		s := n.ShardAt(1)
		x, err := s.Session(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, view := range map[string]*node.Shard{"Implicit": s, "Session": s.In(x)} {
			l := mustLock(t, view, "l")
			_, err := view.TryLock(t.Context(), "l", nil)
			wantErr(t, name+": try lock", err, node.ErrHeld)
			for _, part := range []string{`"l"`, n.Name(), fmt.Sprint(l.Token())} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: error %q does not name %s", name, err, part)
				}
			}
			_, err = view.Lock(within(t, time.Second), "l", nil)
			wantErr(t, name+": lock again in one goroutine", err, context.DeadlineExceeded)
			if err == nil || !strings.Contains(err.Error(), n.Name()) {
				t.Errorf("%s: error %q does not say who held it", name, err)
			}
			second := make(chan *node.Lock, 1)
			go func() { second <- mustLock(t, view, "l") }() // stops when it has the lock
			time.Sleep(time.Second)
			for info, err := range s.Locks(t.Context(), "l") {
				if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 1 || info.Holders[0].Member.ID != n.ID() || info.Waiters[0].Member.ID != n.ID() {
					t.Errorf("%s: locks: got %+v, %v, want the node as holder and waiter", name, info, err)
				}
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: unlock: %v", name, err)
			}
			next := <-second
			wantErr(t, name+": unlock by the first again", l.Unlock(t.Context()), node.ErrNotHeld)
			if err := next.Check(); err != nil || next.Token() <= l.Token() {
				t.Errorf("%s: the second: token %d after %d, check %v", name, next.Token(), l.Token(), err)
			}
			_, err = view.TryLock(t.Context(), "l", nil)
			wantErr(t, name+": the second holds it", err, node.ErrHeld)
			if err := next.Unlock(t.Context()); err != nil {
				t.Errorf("%s: unlock by the second: %v", name, err)
			}
		}
	})
}
