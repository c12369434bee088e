package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// mirror is a copy of records that a watch keeps, and a check of the rules of watches: revisions never fall, a change is told once.
type mirror struct {
	mu       sync.Mutex
	values   map[string]string
	last     node.Revision
	seen     map[string]bool // key and revision
	events   int
	synced   int
	progress []node.Revision
	err      error // the watch's last
	fault    error
}

// follow watches until ctx ends or the watch does.
func follow(ctx context.Context, s *node.Shard, prefix string, o *node.WatchOptions) (m *mirror, done <-chan struct{}) {
	m = &mirror{values: map[string]string{}, seen: map[string]bool{}}
	ch := make(chan struct{})
	go func() { // stops with ctx, which every test ends
		defer close(ch)
		for e, err := range s.Watch(ctx, prefix, o) {
			m.hear(e, err)
		}
	}()
	return m, ch
}

func (m *mirror) hear(e node.Event, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.err = err
		return
	}
	if e.Revision < m.last && m.fault == nil {
		m.fault = fmt.Errorf("event %v %q at %d after %d", e.Type, e.Record.Key, e.Revision, m.last)
	}
	m.last = e.Revision
	switch e.Type {
	case node.EventPut, node.EventDelete:
		m.events++
		if id := fmt.Sprintf("%s@%d", e.Record.Key, e.Revision); m.seen[id] && m.fault == nil {
			m.fault = fmt.Errorf("%s is told twice", id)
		} else {
			m.seen[id] = true
		}
		if e.Type == node.EventPut {
			m.values[e.Record.Key] = string(e.Record.Value)
		} else {
			delete(m.values, e.Record.Key)
		}
	case node.EventSynced:
		m.synced++
	case node.EventProgress:
		m.progress = append(m.progress, e.Revision)
	}
}

func (m *mirror) get() (values map[string]string, events, synced int, progress []node.Revision, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values), m.events, m.synced, append([]node.Revision(nil), m.progress...), errors.Join(m.fault, m.err)
}

// want waits until the mirror agrees with a fresh listing, and fails if it does not within d.
func (m *mirror) want(t *testing.T, what string, s *node.Shard, prefix string, d time.Duration) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		want := map[string]string{}
		l, err := s.List(within(t, 30*time.Second), prefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range l.All() {
			if err != nil {
				t.Fatal(err)
			}
			want[r.Key] = string(r.Value)
		}
		got, _, _, _, err := m.get()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: what the watch told differs from a listing after %v (-listing +watch):\n%s", what, d, cmp.Diff(want, got))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

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
		var mirrors []*mirror
		var ends []<-chan struct{}
		for round := range 5 {
			for i := range c.Len() {
				m, done := follow(ctx, c.Node(i).ShardAt(1), "k", &node.WatchOptions{Initial: true})
				mirrors, ends = append(mirrors, m), append(ends, done)
				time.Sleep(time.Duration(round*7+i) * time.Millisecond)
			}
		}
		relay := &mirror{values: map[string]string{}, seen: map[string]bool{}}
		start, err := c.Node(0).ShardAt(1).List(ctx, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range start.All() {
			if err != nil {
				t.Fatal(err)
			}
			relay.values[r.Key] = string(r.Value)
		}
		from := start.Revision + 1
		for hop := range 40 { // each hop reads some events on another node; it stops between revisions
			n := 0
			for e, err := range c.Node(hop%c.Len()).ShardAt(1).Watch(ctx, "k", &node.WatchOptions{From: from}) {
				if err != nil {
					t.Fatal(err)
				}
				relay.hear(e, nil)
				from = e.Revision + 1
				if n++; n == 5 {
					break
				}
			}
		}
		close(stop)
		writers.Wait()
		tail, done := follow(ctx, c.Node(1).ShardAt(1), "k", &node.WatchOptions{From: from})
		ends = append(ends, done)
		time.Sleep(2 * time.Second)
		tail.mu.Lock()
		for id := range tail.seen {
			if relay.seen[id] {
				t.Errorf("%s is told again after a hop", id)
			}
		}
		tail.mu.Unlock()
		for i, m := range mirrors {
			m.want(t, fmt.Sprintf("watch %d on node %d", i, i%c.Len()), c.Node(0).ShardAt(1), "k", 5*time.Second)
			if _, _, synced, _, _ := m.get(); synced != 1 {
				t.Errorf("watch %d: synced %d times, want once", i, synced)
			}
		}
		cancel()
		for _, done := range ends {
			<-done
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
		fast, fastDone := follow(ctx, c.Node(others(c, owner)[0]).ShardAt(1), "k", &node.WatchOptions{Initial: true})
		type slow struct {
			m    *mirror
			gate chan struct{}
			done chan struct{}
		}
		var slows []slow
		for _, relist := range []bool{false, true} {
			w := slow{&mirror{values: map[string]string{}, seen: map[string]bool{}}, make(chan struct{}), make(chan struct{})}
			go func() { // stops with ctx
				defer close(w.done)
				for e, err := range c.Node(others(c, owner)[1]).ShardAt(1).Watch(ctx, "k", &node.WatchOptions{Initial: true, Relist: relist}) {
					w.m.hear(e, err)
					if err == nil && e.Type == node.EventSynced && e.Revision > 0 {
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
		if err := slows[0].m.err; !errors.Is(err, node.ErrCompacted) || !errors.As(err, &compacted) || compacted.Oldest == 0 {
			t.Errorf("a slow reader: got %v, want ErrCompacted with the oldest revision", err)
		} else {
			m, done := follow(ctx, s, "k", &node.WatchOptions{From: compacted.Oldest})
			time.Sleep(time.Second)
			if _, n, _, _, err := m.get(); err != nil || n < 90 {
				t.Errorf("from the oldest revision on: %d events, %v", n, err)
			}
			defer func() { <-done }()
		}
		slows[1].m.want(t, "a slow reader with Relist", s, "k", 5*time.Second)
		if _, _, synced, _, _ := slows[1].m.get(); synced != 2 {
			t.Errorf("a slow reader with Relist: synced %d times, want 2", synced)
		}
		fast.want(t, "a fast reader", s, "k", 5*time.Second)
		if _, n, synced, _, _ := fast.get(); n != 413 || synced != 1 {
			t.Errorf("a fast reader: %d events, synced %d times, want 413 and 1", n, synced)
		}
		cancel()
		<-slows[1].done
		<-fastDone
	})
}

// Progress is told after all it covers, also on a quiet prefix, and not while the node is cut off (cases 51 and 55).
func TestCase051_Progress(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(owner).ShardAt(1)
		quiet, d1 := follow(ctx, c.Node(i).ShardAt(1), "quiet", &node.WatchOptions{Progress: true})
		busy, d2 := follow(ctx, c.Node(i).ShardAt(1), "k", &node.WatchOptions{Progress: true})
		var last node.Revision
		for n := range 300 {
			last = mustPut(t, s, fmt.Sprintf("k%d", n%7), fmt.Sprint(n))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(11 * time.Second)
		for name, m := range map[string]*mirror{"quiet": quiet, "busy": busy} {
			_, n, _, progress, err := m.get() // hear checks that no event comes after its progress
			if err != nil || len(progress) < 4 || progress[len(progress)-1] != last {
				t.Errorf("%s: progress %v, %v, want it up to %d", name, progress, err, last)
			}
			if want := map[string]int{"quiet": 0, "busy": 300}[name]; n != want {
				t.Errorf("%s: %d events, want %d", name, n, want)
			}
		}
		c.Isolate(i)
		time.Sleep(time.Second)
		_, _, _, before, _ := quiet.get()
		time.Sleep(30 * time.Second)
		if _, _, _, after, err := quiet.get(); err != nil || len(after) != len(before) {
			t.Errorf("cut off: %d marks after %d, %v, want none more", len(after), len(before), err)
		}
		last = mustPut(t, s, "k-later", "")
		c.Heal()
		time.Sleep(20 * time.Second)
		if _, _, _, after, err := quiet.get(); err != nil || after[len(after)-1] != last {
			t.Errorf("healed: progress up to %v, %v, want %d", after[len(after)-1], err, last)
		}
		busy.want(t, "healed", s, "k", time.Second)
		cancel()
		<-d1
		<-d2
	})
}

// Every watch goes on through a restart of each other node in turn, and while its node is cut off it is silent and then misses nothing (case 55).
func TestCase055_WatchesGoOn(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := c.Node(remote).ShardAt(1)
		var mirrors []*mirror
		var ends []<-chan struct{}
		for i := range 50 {
			m, done := follow(ctx, s, fmt.Sprintf("k%d", i%10), &node.WatchOptions{Initial: true})
			mirrors, ends = append(mirrors, m), append(ends, done)
		}
		write := func(round int) {
			for i := range 10 {
				mustPut(t, s, fmt.Sprintf("k%d", i), fmt.Sprint(round))
			}
		}
		check := func(what string, limit time.Duration) {
			t.Helper()
			for i, m := range mirrors {
				m.want(t, fmt.Sprintf("%s, watch %d", what, i), s, fmt.Sprintf("k%d", i%10), limit)
			}
		}
		for i := range 3 {
			c.Kill(i)
			write(i)
			check(fmt.Sprintf("node %d is dead", i), time.Second)
			c.Restart(i)
			c.AwaitReady()
			write(i + 10)
			check(fmt.Sprintf("node %d is back", i), time.Second)
		}
		c.Isolate(remote)
		for i := range 10 {
			mustPut(t, c.Node(0).ShardAt(1), fmt.Sprintf("k%d", i), "meanwhile")
		}
		time.Sleep(30 * time.Second)
		c.Heal()
		time.Sleep(10 * time.Second)
		check("the watcher's node is back", time.Second)
		cancel()
		for _, done := range ends {
			<-done
		}
	})
}

// Changes elsewhere neither reach a watch nor wake it (case 57).
func TestCase057_NoNeedlessWakeUps(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		owner := c.AwaitOwner(1)
		s := c.Node(owner).ShardAt(1)
		m, done := follow(ctx, s, "a", nil)
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
		if _, n, _, _, err := m.get(); n != 1 || err != nil {
			t.Errorf("got %d events, %v, want 1", n, err)
		}
		if n := c.Node(owner).Stats().WatchWakeups - before; n != 1 {
			t.Errorf("a change of its key woke the watch %d times, want once", n)
		}
		cancel()
		<-done
	})
}
