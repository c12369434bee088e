package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A watch tells each change under its prefix once, in order, with what was before, and the changes of a transaction together; on the owner, on another
// replica, and on a node without one.
func TestShard_Watch(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		c.Add(nil)
		c.AwaitReady()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		got := map[int][]string{}
		var wg sync.WaitGroup
		for i := range c.Len() {
			wg.Go(func() {
				for e, err := range c.Node(i).ShardAt(1).Watch(ctx, "a/", nil) {
					if err != nil {
						return
					}
					mu.Lock()
					got[i] = append(got[i], fmt.Sprintf("%v %s=%s was %s", e.Type, e.Record.Key, e.Record.Value, e.Prev.Value))
					mu.Unlock()
				}
			})
		}
		time.Sleep(2 * time.Second)
		s := c.Node(0).ShardAt(1)
		mustPut(t, s, "a/1", "x")
		mustPut(t, s, "b/1", "not told")
		mustPut(t, s, "a/1", "y")
		if _, err := s.Txn(t.Context(), node.Txn{Then: []node.Op{node.PutOp("a/2", []byte("z"), nil), node.PutOp("b/2", nil, nil), node.DeleteOp("a/1"), node.AddOp("a/0", 3)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		cancel()
		wg.Wait()
		want := []string{"put a/1=x was ", "put a/1=y was x", "put a/2=z was ", "delete a/1= was y", "put a/0=3 was "}
		for i := range c.Len() {
			if d := cmp.Diff(want, got[i]); d != "" {
				t.Errorf("node %d (-want +got):\n%s", i, d)
			}
		}
	})
}

// A watch that begins with a listing has no gap behind it, whatever is written while it begins (case 49), and one that goes on from the last revision
// that another saw, on another node, has neither gap nor repetition (case 55).
func TestCase049_NoGap(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		c.Add(nil)
		c.AwaitReady()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var writers sync.WaitGroup
		stop := make(chan struct{})
		for w := range 4 {
			writers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 1))
				s := c.Node(w).ShardAt(1)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprintf("k%d", r.IntN(20))
					if r.IntN(4) == 0 {
						_, _ = s.Delete(ctx, key)
					} else {
						_, _ = s.Put(ctx, key, fmt.Appendf(nil, "%d-%d", w, n), nil)
					}
				}
			})
		}
		var mirrors []*nodetest.Mirror
		for round := range 5 {
			for i := range c.Len() {
				mirrors = append(mirrors, c.Mirror(c.Node(i).ShardAt(1), "k", &node.WatchOptions{Initial: true}))
				time.Sleep(time.Duration(round*7+i) * time.Millisecond)
			}
		}
		relay := map[string]bool{}
		start, err := c.Node(0).ShardAt(1).List(ctx, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		from := start.Revision + 1
		for hop := range 40 { // each hop reads some events on another node; it stops between revisions
			n := 0
			for e, err := range c.Node(hop%c.Len()).ShardAt(1).Watch(ctx, "k", &node.WatchOptions{From: from}) {
				if err != nil {
					t.Fatal(err)
				}
				if id := fmt.Sprint(e.Record.Key, e.Revision); e.Revision < from || relay[id] {
					t.Fatalf("hop %d: %v of %q at revision %d, which is told again", hop, e.Type, e.Record.Key, e.Revision)
				} else {
					relay[id] = true
				}
				from = e.Revision + 1
				if n++; n == 5 {
					break
				}
			}
		}
		close(stop)
		writers.Wait()
		for i, m := range mirrors {
			m.Await(c.Node(0).ShardAt(1), "k", 5*time.Second)
			if _, synced := m.Events(); synced != 1 {
				t.Errorf("watch %d: synced %d times, want once", i, synced)
			}
		}
		all := map[string]bool{} // of the same stretch, by one watch
		for e, err := range c.Node(1).ShardAt(1).Watch(ctx, "k", &node.WatchOptions{From: start.Revision + 1}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Revision >= from {
				break
			}
			all[fmt.Sprint(e.Record.Key, e.Revision)] = true
		}
		if d := cmp.Diff(all, relay); d != "" {
			t.Errorf("what the hops were told (-one watch +hops):\n%s", d)
		}
	})
}

// shortHistory keeps few changes.
func shortHistory(_ int, c *node.Config) { c.History = 100 }

// A reader that falls behind the history is told so, with the oldest revision, and one that asked for it gets what differs from a fresh listing, deletes
// included, and goes on (cases 50 and 56). A fast reader beside it sees everything.
func TestCase050_SlowReader(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: shortHistory}, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		owner := c.AwaitOwner(1)
		s := c.Node(owner).ShardAt(1)
		for i := range 10 {
			mustPut(t, s, fmt.Sprintf("k%d", i), "old")
		}
		fast := c.Mirror(c.Node(others(c, owner)[0]).ShardAt(1), "k", &node.WatchOptions{Initial: true})
		type slow struct {
			values map[string]string
			synced int
			err    error
			gate   chan struct{}
			done   chan struct{}
		}
		var slows []*slow
		for _, relist := range []bool{false, true} {
			w := &slow{values: map[string]string{}, gate: make(chan struct{}), done: make(chan struct{})}
			go func() { // stops with ctx
				defer close(w.done)
				for e, err := range c.Node(others(c, owner)[1]).ShardAt(1).Watch(ctx, "k", &node.WatchOptions{Initial: true, Relist: relist}) {
					switch {
					case err != nil:
						w.err = err
					case e.Type == node.EventPut:
						w.values[e.Record.Key] = string(e.Record.Value)
					case e.Type == node.EventDelete:
						delete(w.values, e.Record.Key)
					case e.Type == node.EventSynced:
						w.synced++
						<-w.gate
					}
				}
			}()
			slows = append(slows, w)
		}
		time.Sleep(time.Second)
		for i := range 400 {
			mustPut(t, s, fmt.Sprintf("k%d", 5+i%10), fmt.Sprint(i))
		}
		for i := range 3 {
			if _, err := s.Delete(ctx, fmt.Sprintf("k%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second) // the history is trimmed
		for _, w := range slows {
			close(w.gate)
		}
		<-slows[0].done
		var compacted *node.CompactedError
		if err := slows[0].err; !errors.Is(err, node.ErrCompacted) || !errors.As(err, &compacted) || compacted.Oldest == 0 {
			t.Errorf("a slow reader: got %v, want ErrCompacted with the oldest revision", err)
		} else {
			m := c.Mirror(s, "k", &node.WatchOptions{From: compacted.Oldest})
			time.Sleep(time.Second)
			if n, _ := m.Events(); m.Err() != nil || n < 90 {
				t.Errorf("from the oldest revision on: %d events, %v", n, m.Err())
			}
		}
		time.Sleep(5 * time.Second)
		cancel()
		<-slows[1].done
		fast.Await(s, "k", time.Second)
		if d := cmp.Diff(fast.Values(), slows[1].values); d != "" || slows[1].synced != 2 {
			t.Errorf("a slow reader with Relist: synced %d times, want 2 (-listing +watch):\n%s", slows[1].synced, d)
		}
		if n, synced := fast.Events(); n != 413 || synced != 1 {
			t.Errorf("a fast reader: %d events, synced %d times, want 413 and 1", n, synced)
		}
	})
}

// Progress is told after all it covers, also on a quiet prefix, and not while the node is cut off (cases 51 and 55).
func TestCase051_Progress(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(owner).ShardAt(1)
		quiet := c.Mirror(c.Node(i).ShardAt(1), "quiet", &node.WatchOptions{Progress: true})
		busy := c.Mirror(c.Node(i).ShardAt(1), "k", &node.WatchOptions{Progress: true})
		time.Sleep(time.Second)
		var last node.Revision
		for n := range 300 {
			last = mustPut(t, s, fmt.Sprintf("k%d", n%7), fmt.Sprint(n))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(11 * time.Second)
		for m, want := range map[*nodetest.Mirror]int{quiet: 0, busy: 300} {
			n, _ := m.Events() // that no event comes after progress that covers it is the mirror's to check
			progress := m.Progress()
			if n != want || len(progress) < 4 || progress[len(progress)-1] != last {
				t.Errorf("%d events, progress %v, %v, want %d, and progress up to %d", n, progress, m.Err(), want, last)
			}
		}
		c.Isolate(i)
		time.Sleep(time.Second)
		before := len(quiet.Progress())
		time.Sleep(30 * time.Second)
		if after := len(quiet.Progress()); quiet.Err() != nil || after != before {
			t.Errorf("cut off: %d marks after %d, %v, want none more", after, before, quiet.Err())
		}
		last = mustPut(t, s, "k-later", "")
		c.Heal()
		time.Sleep(20 * time.Second)
		if after := quiet.Progress(); after[len(after)-1] != last {
			t.Errorf("healed: progress up to %v, %v, want %d", after[len(after)-1], quiet.Err(), last)
		}
		if v := busy.Values(); len(v) != 8 {
			t.Errorf("healed: told of %q, want 8 keys", v)
		}
	})
}

// Every watch goes on through a restart of each other node in turn, and while its node is cut off it is silent and then misses nothing (case 55).
func TestCase055_WatchesGoOn(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		s := c.Node(remote).ShardAt(1)
		var mirrors []*nodetest.Mirror
		for i := range 50 {
			mirrors = append(mirrors, c.Mirror(s, fmt.Sprintf("k%d", i%10), &node.WatchOptions{Initial: true}))
		}
		write := func(round int) {
			for i := range 10 {
				mustPut(t, s, fmt.Sprintf("k%d", i), fmt.Sprint(round))
			}
		}
		check := func() {
			t.Helper()
			for i, m := range mirrors {
				m.Await(s, fmt.Sprintf("k%d", i%10), time.Second)
			}
		}
		for i := range 3 {
			c.Kill(i)
			write(i)
			check()
			c.Restart(i)
			c.AwaitReady()
			write(i + 10)
			check()
		}
		c.Isolate(remote)
		for i := range 10 {
			mustPut(t, c.Node(0).ShardAt(1), fmt.Sprintf("k%d", i), "meanwhile")
		}
		time.Sleep(30 * time.Second)
		c.Heal()
		time.Sleep(10 * time.Second)
		check()
	})
}

// Changes elsewhere neither reach a watch nor wake it (case 57).
func TestCase057_NoNeedlessWakeUps(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		s := c.Node(owner).ShardAt(1)
		m := c.Mirror(s, "a", nil)
		time.Sleep(time.Second)
		before := c.Node(owner).Stats().WatchWakeups
		for i := range 1000 {
			mustPut(t, s, fmt.Sprintf("b%d", i%10), "")
		}
		if n := c.Node(owner).Stats().WatchWakeups - before; n != 0 {
			t.Errorf("1000 changes of other keys woke the watch %d times", n)
		}
		mustPut(t, s, "a", "")
		time.Sleep(time.Second)
		if n, _ := m.Events(); n != 1 || m.Err() != nil {
			t.Errorf("got %d events, %v, want 1", n, m.Err())
		}
		if n := c.Node(owner).Stats().WatchWakeups - before; n != 1 {
			t.Errorf("a change of its key woke the watch %d times, want once", n)
		}
	})
}

// A node without a replica follows the one in its own zone, and another when that is gone.
func TestShard_Watch_OwnZoneFirst(t *testing.T) {
	zones := []string{"a", "b", "c", "b"}
	o := &nodetest.Options{Config: func(i int, c *node.Config) { c.Zone = zones[i] }}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		time.Sleep(10 * time.Second)
		served := func(what string, want int) {
			t.Helper()
			before := make([]uint64, 3)
			for i := range 3 {
				if n := c.Node(i); n != nil {
					before[i] = n.Stats().RequestsServed
				}
			}
			time.Sleep(30 * time.Second)
			for i := range 3 {
				n := c.Node(i)
				if n == nil {
					continue
				}
				if asked := n.Stats().RequestsServed - before[i]; (asked >= 50) != (i == want) { // a question every 500 ms
					t.Errorf("%s: node %d in zone %s was asked %d times in 30 s", what, i, zones[i], asked)
				}
			}
		}
		m := c.Mirror(c.Node(remote).ShardAt(1), "k", nil)
		time.Sleep(2 * time.Second)
		served("all are there", 1)
		c.Kill(1)
		time.Sleep(20 * time.Second)
		mustPut(t, c.Node(0).ShardAt(1), "k", "v")
		time.Sleep(2 * time.Second)
		if n, _ := m.Events(); n != 1 {
			t.Errorf("after its source died: %d events, want 1", n)
		}
	})
}
