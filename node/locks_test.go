package node_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// The holder of a lock hears of a request to give it up, and of its forced end, within a round trip, on every node; a forced end frees the lock for
// the next, and the former holder's guarded writes are fenced.
func TestShard_ForceRelease(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := t.Context()
		for i := range 3 {
			s, other := c.Node(i).ShardAt(1), c.Node((i+1)%3).ShardAt(1)
			name := fmt.Sprint("x", i)
			l := mustLock(t, s, name)
			time.Sleep(time.Second)
			if err := other.RequestRevoke(ctx, name); err != nil {
				t.Fatalf("request revoke: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
			select {
			case <-l.Revoked():
			default:
				t.Errorf("node %d: the holder did not hear of the request", i)
			}
			if err := l.Check(); err != nil {
				t.Errorf("a request took the lock: %v", err)
			}
			var infos []node.LockInfo
			for info, err := range other.Locks(ctx, name) {
				if err != nil {
					t.Fatalf("list: %v", err)
				}
				infos = append(infos, info)
			}
			if len(infos) != 1 || len(infos[0].Holders) != 1 || infos[0].Holders[0].Token != l.Token() || infos[0].Holders[0].Member.ID != c.Node(i).ID() || infos[0].Holders[0].Age < time.Second {
				t.Errorf("list: got %+v, want the one holder", infos)
			}
			if err := other.ForceRelease(ctx, name, l.Token()); err != nil {
				t.Fatalf("force release: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := l.Check(); !errors.Is(err, node.ErrLost) || !isDone(l) {
				t.Errorf("node %d after a forced release: check %v, done %v", i, err, isDone(l))
			}
			if _, err := s.Guarded(l).Put(ctx, "k", nil, nil); !errors.Is(err, node.ErrFenced) {
				t.Errorf("guarded put: got %v, want ErrFenced", err)
			}
			next, err := other.TryLock(ctx, name, nil)
			if err != nil || next.Token() <= l.Token() {
				t.Fatalf("the next: token %d after %d, %v", next.Token(), l.Token(), err)
			}
			if err := other.ForceRelease(ctx, name, l.Token()); !errors.Is(err, node.ErrNotHeld) {
				t.Errorf("forced release by an old token: got %v, want ErrNotHeld", err)
			}
			if err := next.Unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
	})
}

// A notice is not lost when the shard's owner changes between the forced release and the listener's next question.
func TestShard_ForceRelease_OverFailover(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		i := others(c, owner)[0]
		l, err := c.Node(i).ShardAt(1).Lock(t.Context(), "x", &node.LockOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.Drop(owner, i) // the holder cannot be told
		if err := c.Node(others(c, owner, i)[0]).ShardAt(1).ForceRelease(within(t, 10*time.Second), "x", l.Token()); err != nil {
			t.Fatalf("force release: %v", err)
		}
		c.Kill(owner)
		c.Heal()
		time.Sleep(10 * time.Second)
		if err := l.Check(); !errors.Is(err, node.ErrLost) {
			t.Errorf("check after the failover: got %v, want ErrLost", err)
		}
	})
}
