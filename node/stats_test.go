package node_test

import (
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// proposed is how many entries all nodes have proposed.
func proposed(c *nodetest.Cluster) (n uint64) {
	for _, x := range c.Nodes() {
		n += x.Stats().Proposals
	}
	return n
}

// total adds up a counter of all nodes.
func total(c *nodetest.Cluster, f func(node.Stats) uint64) (n uint64) {
	for _, x := range c.Nodes() {
		n += f(x.Stats())
	}
	return n
}

// What one step costs in log entries: an uncontended lock and its unlock one each, a hand-off between two waiters one, a try that fails one, a
// call to Check, Locks or Get none.
func TestStats_EntriesOfALock(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		a, b := c.Node((owner+1)%3).ShardAt(1), c.Node((owner+2)%3).ShardAt(1)
		for _, s := range []*node.Shard{a, b} { // their sessions exist from here on
			mustPut(t, s, "k", "v")
		}
		costs := func(what string, want uint64, f func()) {
			t.Helper()
			before := proposed(c)
			f()
			if got := proposed(c) - before; got != want {
				t.Errorf("%s: got %d entries, want %d", what, got, want)
			}
		}
		var l *node.Lock
		costs("a lock", 1, func() { l = mustLock(t, a, "l") })
		costs("looking", 0, func() {
			for range b.Locks(t.Context(), "") {
			}
			if _, err := b.Get(t.Context(), "k"); err != nil || l.Check() != nil {
				t.Errorf("get: %v, check: %v", err, l.Check())
			}
		})
		costs("a try", 1, func() {
			_, err := b.TryLock(t.Context(), "l", nil)
			wantErr(t, "try lock", err, node.ErrHeld)
		})
		var next *node.Lock
		granted := make(chan struct{})
		costs("a wait", 1, func() {
			go func() { // stops when the lock is granted
				next = mustLock(t, b, "l")
				close(granted)
			}()
			time.Sleep(time.Second)
		})
		costs("a hand-off", 1, func() {
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
			<-granted
		})
		costs("an unlock", 1, func() {
			if err := next.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
		})
		costs("a lock and its unlock", 2, func() {
			if err := mustLock(t, a, "m").Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
		})
	})
}

// Renewals of sessions at a steady owner cost no log entry over many TTLs, and one message for each owner and quarter of the TTL, however many
// sessions of however many shards a node has there, and whenever they were opened.
func TestStats_RenewalsCostNoEntries(t *testing.T) {
	const ttl, quarters = 2 * time.Second, 80
	o := &nodetest.Options{Shards: 4, Config: sessionTTL(ttl)}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		caller := c.Add(func(c *node.Config) { c.NoReplicas = true })
		n := c.Node(caller)
		c.AwaitReady()
		owners := map[int]bool{}
		var xs []*node.Session
		for i := range 12 {
			s := n.ShardAt(i%4 + 1)
			owners[c.AwaitOwner(i%4+1)] = true
			x, err := s.Session(t.Context(), ttl+time.Duration(i%3)*100*time.Millisecond)
			if err != nil {
				t.Fatalf("open session: %v", err)
			}
			xs = append(xs, x)
			time.Sleep(time.Duration(37*i) * time.Millisecond)
		}
		time.Sleep(2 * ttl) // until they are renewed together
		entries, sent := proposed(c), n.Stats().RenewalsSent
		memory := total(c, func(s node.Stats) uint64 { return s.RenewalsInMemory })
		time.Sleep(quarters * ttl / 4)
		if got := proposed(c) - entries; got != 0 {
			t.Errorf("entries in %d TTLs: got %d, want none", quarters/4, got)
		}
		most := uint64(len(owners) * (quarters + 1))
		if got := n.Stats().RenewalsSent - sent; got > most || got < most/2 {
			t.Errorf("messages of one node to %d owners in %d quarters of the TTL: got %d, want at most %d", len(owners), quarters, got, most)
		}
		if got := total(c, func(s node.Stats) uint64 { return s.RenewalsInMemory }) - memory; got < uint64(len(xs)*quarters/2) {
			t.Errorf("renewals in memory: got %d of %d sessions in %d quarters", got, len(xs), quarters)
		}
		st := n.Stats()
		if st.Sessions != len(xs) || st.SessionsLost != 0 || st.RenewalsFailed != 0 {
			t.Errorf("stats of the caller: got %+v, want %d sessions and no failure", st.SessionStats, len(xs))
		}
		for i, x := range xs {
			if err := x.Check(); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		}
	})
}

// Sessions that fall silent together are checkpointed together and end together, in few entries; their loss shows at the owner, and at the
// holder when it is back.
func TestStats_SilentSessionsAreBatched(t *testing.T) {
	const ttl, count = 3 * time.Second, 200
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		caller := c.Add(func(c *node.Config) { c.NoReplicas = true })
		n := c.Node(caller)
		for range count {
			if _, err := n.ShardAt(1).Session(t.Context(), ttl); err != nil {
				t.Fatalf("open session: %v", err)
			}
		}
		mustLock(t, n.ShardAt(1), "l")
		time.Sleep(2 * ttl)
		if st := n.Stats(); st.Sessions != count+1 || st.Holds != 1 || st.OldestHold < 2*ttl || st.OldestHold > 3*ttl {
			t.Errorf("stats of the holder: got %+v, want %d sessions and a hold of %v", st.SessionStats, count+1, 2*ttl)
		}
		entries := proposed(c)
		c.Isolate(caller)
		time.Sleep(2 * ttl)
		st := c.Node(owner).Stats()
		if st.SessionsCheckpointed != count+1 || st.SessionsExpired != count+1 {
			t.Errorf("at the owner: got %d checkpointed and %d expired, want %d each", st.SessionsCheckpointed, st.SessionsExpired, count+1)
		}
		if got := proposed(c) - entries; got > 10 || st.CheckpointsLogged > 5 || st.ExpiriesLogged > 5 {
			t.Errorf("got %d entries, %d checkpoints, %d expiries for %d sessions", got, st.CheckpointsLogged, st.ExpiriesLogged, count+1)
		}
		if st := n.Stats(); st.SessionsLost != count+1 || st.HoldsLost != 1 || st.Sessions != 0 || st.Holds != 0 || st.RenewalsFailed == 0 {
			t.Errorf("at the holder: got %+v, want all lost", st.SessionStats)
		}
	})
}
