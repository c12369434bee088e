package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// putMany writes n records k00000, k00001, … through s.
func putMany(t *testing.T, s *node.Shard, n int, value string) {
	t.Helper()
	var ops []node.Op
	for k := range n {
		ops = append(ops, node.PutOp(fmt.Sprintf("k%05d", k), []byte(value), nil))
		if len(ops) == 125 || k == n-1 {
			if _, err := s.Txn(within(t, 30*time.Second), node.Txn{Then: ops}); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}

// A slowReader watches and stops reading once it has heard so many events, until it is let go on. What it hears it keeps in a copy.
type slowReader struct {
	at     int // stops before it takes this event
	stands chan struct{}
	goOn   chan struct{}
	done   chan struct{}

	mu     sync.Mutex // guards the fields below
	values map[string]string
	last   node.Revision
	synced int
	fault  error
	err    error
}

func watchSlowly(ctx context.Context, s *node.Shard, at int, o *node.WatchOptions) *slowReader {
	r := &slowReader{at: at, stands: make(chan struct{}), goOn: make(chan struct{}), done: make(chan struct{}), values: map[string]string{}}
	go func() { // stops with ctx, which every test ends
		defer close(r.done)
		n := 0
		for e, err := range s.Watch(ctx, "k", o) {
			if n++; n == r.at {
				close(r.stands)
				<-r.goOn
			}
			r.hear(e, err)
		}
	}()
	return r
}

func (r *slowReader) hear(e node.Event, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.err = err
	case e.Revision < r.last:
		r.fault = fmt.Errorf("%v of %q at %d after %d", e.Type, e.Record.Key, e.Revision, r.last)
	case e.Type == node.EventPut:
		r.values[e.Record.Key] = string(e.Record.Value)
	case e.Type == node.EventDelete:
		delete(r.values, e.Record.Key)
	case e.Type == node.EventSynced:
		r.synced++
	}
	r.last = max(r.last, e.Revision)
}

// await waits until the copy is what a listing says.
func (r *slowReader) await(t *testing.T, what string, s *node.Shard) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		want := map[string]string{}
		l, err := s.List(within(t, 30*time.Second), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range l.All() {
			if err != nil {
				t.Fatal(err)
			}
			want[rec.Key] = string(rec.Value)
		}
		r.mu.Lock()
		same, err := len(r.values) == len(want), errors.Join(r.fault, r.err)
		for k, v := range want {
			same = same && r.values[k] == v
		}
		r.mu.Unlock()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: the watch does not agree with a listing", what)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// With Relist, a reader may stop at any point of the first listing, or after it, while the history is trimmed and the records go on changing: it ends
// up with what a listing has, and its revisions never fall (cases 50 and 56).
func TestCase056_RelistAtEachPoint(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: shortHistory}, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		owner := c.AwaitOwner(1)
		s := c.Node(owner).ShardAt(1)
		const n = 2300
		putMany(t, s, n, "old")
		readers := map[string]*slowReader{}
		for i, at := range []int{1, 10, 1000, 1001, n, n + 1, n + 2} {
			readers[fmt.Sprint("stopped at ", at)] = watchSlowly(ctx, c.Node(i%c.Len()).ShardAt(1), at, &node.WatchOptions{Initial: true, Relist: true})
		}
		plain := watchSlowly(ctx, s, 10, &node.WatchOptions{Initial: true})
		for what, r := range readers {
			if what != fmt.Sprint("stopped at ", n+2) {
				<-r.stands
			}
		}
		<-plain.stands
		for i := range 300 {
			mustPut(t, s, fmt.Sprintf("k%05d", i%7), fmt.Sprint(i))
		}
		for _, k := range []int{3, 500, 1500, 2299} {
			if _, err := s.Delete(ctx, fmt.Sprintf("k%05d", k)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second) // the history is trimmed
		for _, r := range readers {
			close(r.goOn)
		}
		close(plain.goOn)
		for what, r := range readers {
			r.await(t, what, s)
		}
		<-plain.done
		wantErr(t, "without Relist", plain.err, node.ErrCompacted)
		cancel()
		for _, r := range readers {
			<-r.done
		}
	})
}

// A watch that has to list anew, or that is in the middle of its first listing, while no owner can be reached waits for one, as it does at any other time:
// it does not end (case 55).
func TestCase055_RelistWithoutOwner(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: shortHistory}, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(owner).ShardAt(1)
		putMany(t, s, 1100, "old")
		readers := map[string]*slowReader{}
		for what, o := range map[string]*node.WatchOptions{"first listing": {Initial: true}, "first listing with Relist": {Initial: true, Relist: true}} {
			readers[what] = watchSlowly(ctx, c.Node(i).ShardAt(1), 900, o)
		}
		readers["relisting"] = watchSlowly(ctx, c.Node(i).ShardAt(1), 1101, &node.WatchOptions{Initial: true, Relist: true})
		for _, r := range readers {
			<-r.stands
		}
		for n := range 50 { // within the history
			mustPut(t, s, "k00001", fmt.Sprint(n))
		}
		c.Isolate(i)
		close(readers["first listing"].goOn)
		close(readers["first listing with Relist"].goOn)
		time.Sleep(30 * time.Second)
		c.Heal()
		readers["first listing"].await(t, "first listing", s)
		readers["first listing with Relist"].await(t, "first listing with Relist", s)
		for n := range 300 {
			mustPut(t, s, "k00001", fmt.Sprint(n))
		}
		time.Sleep(30 * time.Second) // the history is trimmed, also at the replica where the reader stands
		c.Isolate(i)
		close(readers["relisting"].goOn)
		time.Sleep(30 * time.Second)
		c.Heal()
		readers["relisting"].await(t, "relisting", s)
		cancel()
		for _, r := range readers {
			<-r.done
		}
	})
}

// A watch of a shard in which nothing was ever written makes progress too (case 51).
func TestCase051_ProgressOfAnEmptyShard(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		for _, i := range []int{0, remote} {
			m := c.Mirror(c.Node(i).ShardAt(1), "", &node.WatchOptions{Progress: true})
			time.Sleep(12 * time.Second)
			if p := m.Progress(); len(p) < 2 || p[0] != 0 {
				t.Errorf("node %d: got progress %v, want revision 0 twice", i, p)
			}
			m.Stop()
		}
	})
}

// A watch from beyond the next revision, one of a lost future, is told so at once on every node and does not wait in silence; one that is only ahead of the replica
// that serves it goes on. The swap of such a revision is a conflict (case 53).
func TestCase053_FutureIsToldSo(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		owner := c.AwaitOwner(1)
		rev := mustPut(t, c.Node(owner).ShardAt(1), "k", "1")
		for i := range c.Len() {
			s := c.Node(i).ShardAt(1)
			for _, from := range []node.Revision{rev + 2, rev + 1000, 1 << 63, ^node.Revision(0)} {
				var err error
				for _, err = range s.Watch(within(t, 20*time.Second), "k", &node.WatchOptions{From: from, Relist: true}) {
				}
				wantErr(t, fmt.Sprintf("node %d (remote %d), from %d of %d", i, remote, from, rev), err, node.ErrInvalid)
			}
			_, err := s.CompareAndSwap(t.Context(), "k", rev+900, nil, nil)
			wantErr(t, "a swap of a revision to come", err, node.ErrConflict)
		}
		behind := others(c, owner, remote)[0]
		c.Isolate(behind)
		last := mustPut(t, c.Node(owner).ShardAt(1), "k", "2")
		m := c.Mirror(c.Node(behind).ShardAt(1), "k", &node.WatchOptions{From: last + 1})
		time.Sleep(10 * time.Second)
		c.Heal()
		time.Sleep(10 * time.Second)
		mustPut(t, c.Node(owner).ShardAt(1), "k", "3")
		m.Await(c.Node(owner).ShardAt(1), "k", 10*time.Second)
		if n, _ := m.Events(); n != 1 || m.Err() != nil {
			t.Errorf("a watch ahead of its replica: %d events, %v, want 1", n, m.Err())
		}
		m.Stop()
	})
}

// Who waits for changes is woken when the replica here begins to run: it may have more than the one that answered before.
func TestWatch_ReplicaOpens(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		n := c.Node(0)
		m := c.Mirror(n.ShardAt(1), "k", nil)
		time.Sleep(time.Second)
		before := n.Stats().WatchWakeups
		node.Reopen(n, 1)
		time.Sleep(time.Second)
		if got := n.Stats().WatchWakeups - before; got != 1 {
			t.Errorf("woken %d times, want once", got)
		}
		m.Stop()
	})
}
