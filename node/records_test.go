package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// keysOf reads a whole listing.
func keysOf(t *testing.T, s *node.Shard, prefix string, o *node.ListOptions) (keys []string, l *node.Listing) {
	t.Helper()
	l, err := s.List(within(t, 30*time.Second), prefix, o)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	for r, err := range l.All() {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		keys = append(keys, r.Key)
	}
	return keys, l
}

// List finds what its prefix and range say, in order, on every kind of node, and an earlier revision as it was.
func TestShard_List(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		s := c.Node(0).ShardAt(1)
		for _, k := range []string{"a", "b/1", "b/2", "b/3", "b0", "c\xff", "c\xff\xff"} {
			mustPut(t, s, k, "v-"+k)
		}
		_, whole := keysOf(t, s, "", nil)
		before := whole.Revision
		mustPut(t, s, "b/2", "new")
		if _, err := s.Delete(t.Context(), "b/3"); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "b/4", "new")
		for i := range c.Len() {
			s := c.Node(i).ShardAt(1)
			for _, x := range []struct {
				prefix string
				o      *node.ListOptions
				want   []string
			}{
				{"", nil, []string{"a", "b/1", "b/2", "b/4", "b0", "c\xff", "c\xff\xff"}},
				{"b/", nil, []string{"b/1", "b/2", "b/4"}},
				{"b/", &node.ListOptions{Reverse: true, Limit: 2}, []string{"b/4", "b/2"}},
				{"b", &node.ListOptions{From: "b/2", To: "b0"}, []string{"b/2", "b/4"}},
				{"c\xff", nil, []string{"c\xff", "c\xff\xff"}},
				{"b/", &node.ListOptions{At: before}, []string{"b/1", "b/2", "b/3"}},
				{"x", nil, nil},
			} {
				got, _ := keysOf(t, s, x.prefix, x.o)
				if d := cmp.Diff(x.want, got); d != "" {
					t.Errorf("node %d (remote %d): list %q, %+v (-want +got):\n%s", i, remote, x.prefix, x.o, d)
				}
			}
		}
		old, err := s.List(t.Context(), "b/2", &node.ListOptions{At: before})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range old.All() {
			if err != nil || string(r.Value) != "v-b/2" {
				t.Errorf("at revision %d: got %q, %v, want v-b/2", before, r.Value, err)
			}
		}
		_, err = s.List(t.Context(), "", &node.ListOptions{At: before + 1000})
		wantErr(t, "a listing of the future", err, node.ErrInvalid)
	})
}

// A listing of many pages shows one revision, whatever is written meanwhile, also when the owner dies in between.
func TestShard_ListPages(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(i).ShardAt(1)
		const n = 2500
		var ops []node.Op
		for k := range n {
			if ops = append(ops, node.PutOp(fmt.Sprintf("k%05d", k), []byte("0"), nil)); len(ops) == 125 {
				if _, err := s.Txn(t.Context(), node.Txn{Then: ops}); err != nil {
					t.Fatal(err)
				}
				ops = nil
			}
		}
		l, err := s.List(within(t, time.Minute), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for r, err := range l.All() {
			if err != nil {
				t.Fatalf("after %d records: %v", count, err)
			}
			if want := fmt.Sprintf("k%05d", count); r.Key != want || string(r.Value) != "0" {
				t.Fatalf("record %d: got %q = %q, want %q = 0", count, r.Key, r.Value, want)
			}
			if count%500 == 0 { // before, after and in the middle of what has been read
				mustPut(t, s, fmt.Sprintf("k%05d", n-1-count/2), "1")
				mustPut(t, s, fmt.Sprintf("k%05d-new", count), "1")
				if _, err := s.Delete(within(t, time.Minute), fmt.Sprintf("k%05d", n-300-count/2)); err != nil {
					t.Fatal(err)
				}
			}
			if count == 1200 {
				c.Kill(owner)
			}
			count++
		}
		if count != n {
			t.Errorf("got %d records, want %d", count, n)
		}
	})
}

// A transaction does all of one branch or nothing, and its changes share a revision.
func TestShard_Txn(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		r, err := s.Txn(ctx, node.Txn{
			If:   []node.Cond{node.KeyAbsent("a"), node.ModIs("b", 0)},
			Then: []node.Op{node.PutOp("a", []byte("1"), nil), node.AddOp("n", 5), node.GetOp("a"), node.DeleteOp("x")},
		})
		if err != nil || !r.Succeeded || r.Results[1].Number != 5 || r.Results[2].Found || r.Results[3].Found {
			t.Fatalf("first: got %+v, %v", r, err)
		}
		a, err := s.Get(ctx, "a")
		if err != nil || a.Mod != r.Revision {
			t.Errorf("a: got %+v, %v, want revision %d", a, err, r.Revision)
		}
		n, err := s.Get(ctx, "n")
		if err != nil || n.Mod != r.Revision || string(n.Value) != "5" {
			t.Errorf("n: got %+v, %v, want 5 at revision %d", n, err, r.Revision)
		}
		r2, err := s.Txn(ctx, node.Txn{
			If:   []node.Cond{node.ValueIs("a", []byte("2"))},
			Then: []node.Op{node.PutOp("a", []byte("3"), nil)},
			Else: []node.Op{node.GetOp("a"), node.GetOp("none")},
		})
		if err != nil || r2.Succeeded || string(r2.Results[0].Record.Value) != "1" || r2.Results[1].Found || r2.Revision != r.Revision {
			t.Errorf("else: got %+v, %v", r2, err)
		}
		_, err = s.Txn(ctx, node.Txn{Then: []node.Op{node.PutOp("a", []byte("4"), nil), node.AddOp("bad", 1), node.PutOp("bad2", nil, nil)}})
		if err != nil {
			t.Error(err)
		}
		mustPut(t, s, "bad", "text")
		_, err = s.Txn(ctx, node.Txn{Then: []node.Op{node.PutOp("a", []byte("5"), nil), node.AddOp("bad", 1)}})
		wantErr(t, "adding to text", err, node.ErrInvalid)
		if a, err := s.Get(ctx, "a"); err != nil || string(a.Value) != "4" {
			t.Errorf("a after a transaction that failed: got %q, %v, want 4", a.Value, err)
		}
	})
}

// What is beyond its limit is refused before it is proposed, with ErrTooLarge, and moves no leadership; at the limit it is done (case 66).
func TestCase066_Limits(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		s := c.Node(others(c, owner)[0]).ShardAt(1)
		_, token, err := c.Node(owner).Owner(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ops := func(n, size int) node.Txn {
			var x node.Txn
			for i := range n {
				x.Then = append(x.Then, node.PutOp(fmt.Sprintf("%04d", i), make([]byte, size), nil))
			}
			return x
		}
		const key, value, txn = 1024, 512 << 10, 1 << 20
		before := c.Node(owner).Stats().Proposals
		for what, f := range map[string]func() error{
			"a key of 1025":       func() error { _, err := s.Put(t.Context(), string(make([]byte, key+1)), nil, nil); return err },
			"a value of +1":       func() error { _, err := s.Put(t.Context(), "k", make([]byte, value+1), nil); return err },
			"a value of 64 MB":    func() error { _, err := s.Put(t.Context(), "k", make([]byte, 64<<20), nil); return err },
			"a swap of +1":        func() error { _, err := s.CompareAndSwap(t.Context(), "k", 0, make([]byte, value+1), nil); return err },
			"129 operations":      func() error { _, err := s.Txn(t.Context(), ops(129, 1)); return err },
			"1000 half limits":    func() error { _, err := s.Txn(t.Context(), ops(1000, value/2)); return err },
			"a transaction of +1": func() error { _, err := s.Txn(t.Context(), ops(128, txn/128-4+1)); return err },
			"an update of +1": func() error {
				_, err := s.Update(t.Context(), "k", func([]byte) ([]byte, error) { return make([]byte, value+1), nil })
				return err
			},
		} {
			wantErr(t, what, f(), node.ErrTooLarge)
		}
		if now := c.Node(owner).Stats().Proposals; now > before+1 { // one for what is in flight beside
			t.Errorf("proposals: got %d after what is too large, want %d", now, before)
		}
		for what, f := range map[string]func() error{
			"a key of 1023": func() error {
				_, err := s.Put(t.Context(), string(bytes.Repeat([]byte("k"), key-1)), nil, nil)
				return err
			},
			"a key of 1024": func() error {
				_, err := s.Put(t.Context(), string(bytes.Repeat([]byte("k"), key)), nil, nil)
				return err
			},
			"a value of -1":    func() error { _, err := s.Put(t.Context(), "k", make([]byte, value-1), nil); return err },
			"a value of 512K":  func() error { _, err := s.Put(t.Context(), "k", make([]byte, value), nil); return err },
			"128 operations":   func() error { _, err := s.Txn(t.Context(), ops(128, 1)); return err },
			"a 1M transaction": func() error { _, err := s.Txn(t.Context(), ops(128, txn/128-4)); return err },
		} {
			wantErr(t, what, f(), nil)
		}
		for range 3 {
			if _, err := s.Txn(t.Context(), ops(4, txn/4-4)); err != nil {
				t.Errorf("1 MiB: %v", err)
			}
		}
		if m, now, err := c.Node(owner).Owner(t.Context(), 1); err != nil || now != token {
			t.Errorf("the owner is %s with token %d, %v: want token %d still", m.Name, now, err, token)
		}
		if got, err := s.Get(t.Context(), "k"); err != nil || len(got.Value) == 0 {
			t.Errorf("get: %d bytes, %v", len(got.Value), err)
		}
	})
}

// Concurrent Updates and Adds on all nodes lose nothing, through a failover (case 58).
func TestCase058_EachIsAppliedOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		var wg sync.WaitGroup
		var mu sync.Mutex
		sure, maybe := 0, 0
		for _, i := range others(c, owner) {
			for range 4 {
				wg.Go(func() {
					s := c.Node(i).ShardAt(1)
					for range 10 {
						_, err := s.Update(within(t, time.Minute), "u", func(old []byte) ([]byte, error) {
							n, _ := strconv.Atoi(string(old))
							return []byte(strconv.Itoa(n + 1)), nil
						})
						if err != nil {
							t.Errorf("update: %v", err)
						}
						_, err = s.Add(within(t, time.Minute), "a", 1)
						mu.Lock()
						switch {
						case err == nil:
							sure++
						case errors.Is(err, node.ErrUnknown):
							maybe++
						}
						mu.Unlock()
						time.Sleep(200 * time.Millisecond)
					}
				})
			}
		}
		time.Sleep(time.Second)
		c.Kill(owner)
		wg.Wait()
		s := c.Node(others(c, owner)[0]).ShardAt(1)
		if r, err := s.Get(t.Context(), "u"); err != nil || string(r.Value) != "80" {
			t.Errorf("updates: got %q, %v, want 80", r.Value, err)
		}
		n, err := s.Add(t.Context(), "a", 0)
		if err != nil || n < int64(sure) || n > int64(sure+maybe) {
			t.Errorf("adds: got %d, %v, want %d, and up to %d more", n, err, sure, maybe)
		}
	})
}

// A record with a TTL goes after it, not before, also when the owner changes again and again; one that is written anew lives on.
func TestPut_TTL(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		put := func(key string) {
			if _, err := s.Put(within(t, 30*time.Second), key, nil, &node.PutOptions{TTL: 20 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(key string, least, most time.Duration) {
			t.Helper()
			began := time.Now()
			for {
				_, err := s.Get(within(t, 30*time.Second), key)
				if errors.Is(err, node.ErrNotFound) {
					break
				}
				if err != nil || time.Since(began) > most {
					t.Errorf("%q is still there after %v (%v), want it gone after %v", key, time.Since(began), err, most)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(began); took < least {
				t.Errorf("%q was gone after %v, want %v at least", key, took, least)
			}
		}
		put("k")
		gone("k", 19500*time.Millisecond, 21*time.Second)
		put("k")
		time.Sleep(15 * time.Second)
		put("k")
		gone("k", 19500*time.Millisecond, 21*time.Second)
		put("k")
		mustPut(t, s, "k", "stays")
		put("moving")
		for range 5 { // each owner stays for less than the TTL
			time.Sleep(12 * time.Second)
			c.Shutdown(c.AwaitOwner(1))
			for i := range c.Len() {
				if c.Node(i) == nil {
					c.Restart(i)
				}
			}
			s = c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		}
		_, err := s.Get(within(t, 30*time.Second), "moving")
		wantErr(t, "after changes of owner for 3 TTLs", err, node.ErrNotFound)
		if r, err := s.Get(within(t, 30*time.Second), "k"); err != nil || string(r.Value) != "stays" {
			t.Errorf("a record that was written anew without TTL: got %q, %v", r.Value, err)
		}
	})
}

// An ephemeral record goes with its session, at its close and when its process dies, and is an event like any other.
func TestPut_Ephemeral(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i, j := others(c, owner)[0], others(c, owner)[1]
		s, reader := c.Node(i).ShardAt(1), c.Node(j).ShardAt(1)
		ephemeral := &node.PutOptions{Ephemeral: true}
		x, err := s.Session(t.Context(), 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.In(x).Put(t.Context(), "mine", []byte("1"), ephemeral); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "node", []byte("1"), ephemeral); err != nil {
			t.Fatal(err)
		}
		if r, err := reader.Get(t.Context(), "mine"); err != nil || !r.Ephemeral {
			t.Errorf("got %+v, %v, want an ephemeral record", r, err)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = reader.Get(t.Context(), "mine")
		wantErr(t, "after its session was closed", err, node.ErrNotFound)
		_, err = s.In(x).Put(t.Context(), "mine", nil, ephemeral)
		wantErr(t, "through a session that has ended", err, node.ErrLost)
		c.Kill(i)
		time.Sleep(4 * time.Second)
		if _, err := reader.Get(within(t, 30*time.Second), "node"); err != nil {
			t.Errorf("before the session timed out: %v", err)
		}
		time.Sleep(6 * time.Second)
		_, err = reader.Get(within(t, 30*time.Second), "node")
		wantErr(t, "after the process died", err, node.ErrNotFound)
	})
}

// DeletePrefix removes the records under the prefix and nothing else: no lock, no session (case 32).
func TestShard_DeletePrefix(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		lock := mustLock(t, s, "a/lock")
		for b := range 20 {
			var x node.Txn
			for k := range 128 {
				x.Then = append(x.Then, node.PutOp(fmt.Sprintf("a/%02d-%03d", b, k), nil, nil))
			}
			if _, err := s.Txn(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
		mustPut(t, s, "b", "")
		n, rev, err := s.DeletePrefix(t.Context(), "a/")
		if err != nil || n != 20*128 || rev == 0 {
			t.Errorf("got %d at %d, %v, want %d", n, rev, err, 20*128)
		}
		if keys, _ := keysOf(t, s, "", nil); !cmp.Equal(keys, []string{"b"}) {
			t.Errorf("left: %q, want b", keys)
		}
		n, rev, err = s.DeletePrefix(t.Context(), "a/")
		if err != nil || n != 0 || rev != 0 {
			t.Errorf("again: got %d at %d, %v, want nothing", n, rev, err)
		}
		if n, _, err := s.DeletePrefix(t.Context(), ""); err != nil || n != 1 {
			t.Errorf("all: got %d, %v, want 1", n, err)
		}
		if err := lock.Check(); err != nil {
			t.Errorf("the lock: %v", err)
		}
		if _, err := s.Guarded(lock).Put(t.Context(), "k", nil, nil); err != nil {
			t.Errorf("a guarded write: %v", err)
		}
	})
}

// A Stale read answers from this node while it may be that old, also when the node is cut off, and never with something older.
func TestShard_Stale(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		s := c.Node(i).ShardAt(1)
		mustPut(t, s, "k", "1")
		get := func(max time.Duration) (string, error) {
			ctx := within(t, 100*time.Millisecond)
			r, err := s.Stale(max).Get(ctx, "k")
			return string(r.Value), err
		}
		if v, err := get(time.Second); err != nil || v != "1" {
			t.Fatalf("got %q, %v, want 1", v, err)
		}
		asked := c.Node(i).Stats().RequestsSent
		for range 100 {
			if _, err := get(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Node(i).Stats().RequestsSent - asked; n > 5 { // renewals
			t.Errorf("100 stale reads sent %d requests, want none", n)
		}
		c.Isolate(i)
		mustPut(t, c.Node(owner).ShardAt(1), "k", "2")
		if v, err := get(10 * time.Second); err != nil || v != "1" {
			t.Errorf("cut off, within the bound: got %q, %v, want 1", v, err)
		}
		time.Sleep(5 * time.Second)
		v, err := get(time.Second)
		wantErr(t, fmt.Sprintf("cut off for longer than the bound, with %q", v), err, node.ErrNoQuorum)
		c.Heal()
		time.Sleep(5 * time.Second)
		if v, err := get(time.Second); err != nil || v != "2" {
			t.Errorf("healed: got %q, %v, want 2", v, err)
		}
	})
}

// The former values of a key are there, last first, through deletion and a new beginning.
func TestShard_History(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		var want []string
		for i := range 250 {
			v := fmt.Sprint(i)
			if i%50 == 49 {
				if _, err := s.Delete(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				v = ""
			} else {
				mustPut(t, s, "k", v)
			}
			mustPut(t, s, "other", v)
			want = append([]string{v}, want...)
		}
		var got []string
		last := node.Revision(1 << 62)
		for e, err := range s.History(t.Context(), "k") {
			if err != nil {
				t.Fatal(err)
			}
			if e.Revision >= last || e.At.IsZero() {
				t.Fatalf("event %+v after revision %d", e, last)
			}
			last = e.Revision
			got = append(got, string(e.Record.Value))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("history (-want +got):\n%s", d)
		}
	})
}
