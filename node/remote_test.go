package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// remoteCluster is a cluster of three that hold all replicas, with indexes 0 to 2, and five that hold none.
func remoteCluster(t *testing.T, f func(t *testing.T, c *nodetest.Cluster, remote []int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, &nodetest.Options{Shards: 2})
		var remote []int
		for range 5 {
			remote = append(remote, c.Add(nil))
		}
		c.AwaitReady()
		for _, sh := range c.Node(remote[0]).Status().Shards {
			for _, i := range remote {
				if slices.Contains(sh.Replicas, c.Node(i).ID()) {
					t.Fatalf("remote node %d has a replica of shard %d", i, sh.Shard)
				}
			}
		}
		f(t, c, remote)
	})
}

// Nodes without replicas read and write every shard, see each other's writes at once, and follow the owners through failovers.
func TestRemote_FollowsOwners(t *testing.T) {
	remoteCluster(t, func(t *testing.T, c *nodetest.Cluster, remote []int) {
		for round := range 4 {
			var wg sync.WaitGroup
			for _, i := range remote {
				wg.Go(func() {
					for s := range 2 {
						began := time.Now()
						mustPut(t, c.Node(i).ShardAt(s+1), fmt.Sprintf("k%d", i), fmt.Sprint(round))
						if took := time.Since(began); took > 4*time.Second {
							t.Errorf("round %d: put at remote node %d took %v, want 4 s at most", round, i, took)
						}
					}
				})
			}
			wg.Wait()
			for k, i := range remote {
				reader := remote[(k+1)%len(remote)]
				r, err := c.Node(reader).ShardAt(1).Get(within(t, 10*time.Second), fmt.Sprintf("k%d", i))
				if err != nil || string(r.Value) != fmt.Sprint(round) {
					t.Errorf("round %d: get at remote node %d: got %q, %v, want %d", round, reader, r.Value, err, round)
				}
			}
			owner := c.AwaitOwner(1 + round%2)
			if round%2 == 0 {
				c.Kill(owner)
			} else {
				c.Shutdown(owner)
			}
			for k := range remote { // no pause for the failover
				mustPut(t, c.Node(remote[k]).ShardAt(1+round%2), "during", "")
			}
			c.Restart(owner)
			c.AwaitReady()
		}
	})
}

// A lock held on a node without replicas outlives failovers of the owner, and passes on in time when its holder dies.
func TestRemote_LockThroughFailovers(t *testing.T) {
	remoteCluster(t, func(t *testing.T, c *nodetest.Cluster, remote []int) {
		l := mustLock(t, c.Node(remote[0]).ShardAt(1), "l")
		c.Track("l", l)
		for range 3 {
			owner := c.AwaitOwner(1)
			c.Kill(owner)
			c.AwaitOwner(1)
			time.Sleep(8 * time.Second)
			c.Restart(owner)
			c.AwaitReady()
			wantErr(t, "a lock that was held through a failover", l.Check(), nil)
		}
		began := time.Now()
		c.Kill(remote[0])
		next := mustLock(t, c.Node(remote[1]).ShardAt(1), "l")
		c.Track("l", next)
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("the lock of a dead remote node was granted after %v, want its 5 s and a bit", took)
		}
		if next.Token() <= l.Token() {
			t.Errorf("tokens: %d after %d", next.Token(), l.Token())
		}
	})
}

// A node without replicas that is cut from everybody loses its lock by its own clock, before another gets it.
func TestRemote_LossInTime(t *testing.T) {
	remoteCluster(t, func(t *testing.T, c *nodetest.Cluster, remote []int) {
		l := mustLock(t, c.Node(remote[0]).ShardAt(1), "l")
		c.Track("l", l)
		c.Isolate(remote[0])
		began := time.Now()
		got := make(chan *node.Lock, 1)
		go func() { // stops when the lock is granted; the test waits for it
			next, err := c.Node(remote[1]).ShardAt(1).Lock(within(t, time.Minute), "l", nil)
			if err != nil {
				t.Errorf("lock: %v", err)
			}
			got <- next
		}()
		wantDone(t, "lock of a remote node that is cut off", l, began, 5*time.Second)
		next := <-got
		wantErr(t, "the former lock at the grant of the next", l.Check(), node.ErrLost)
		if next != nil {
			c.Track("l", next)
		}
		c.Heal()
		if err := l.Unlock(within(t, 10*time.Second)); !errors.Is(err, node.ErrLost) {
			t.Errorf("unlock of the lost lock: got %v, want ErrLost", err)
		}
	})
}

// A node without replicas that is cut from the owner alone works on through another: calls, locks, and the renewals that keep them.
func TestRemote_Relay(t *testing.T) {
	remoteCluster(t, func(t *testing.T, c *nodetest.Cluster, remote []int) {
		for s := 1; s <= 2; s++ {
			c.Drop(remote[0], c.AwaitOwner(s))
		}
		at := c.Node(remote[0])
		l := mustLock(t, at.ShardAt(1), "l")
		c.Track("l", l)
		for range 10 {
			time.Sleep(2 * time.Second)
			mustPut(t, at.ShardAt(1), "k", "v")
			mustPut(t, at.ShardAt(2), "k", "v")
		}
		wantErr(t, "a lock that is renewed through a relay", l.Check(), nil)
		wantErr(t, "unlock through a relay", l.Unlock(within(t, 10*time.Second)), nil)
	})
}

// Nodes without replicas come back at other addresses and as new nodes, and are served after the nodes with replicas moved, all but
// one, which is everybody's seed.
func TestRemote_Moves(t *testing.T) {
	remoteCluster(t, func(t *testing.T, c *nodetest.Cluster, remote []int) {
		c.Kill(remote[0])
		c.RestartAt(remote[0], "127.5.0.1:7400")
		c.Kill(remote[1])
		c.Wipe(remote[1])
		c.Restart(remote[1])
		c.AwaitReady()
		for i := range 2 {
			c.Close(i)
			c.RestartAt(i, fmt.Sprintf("127.6.0.%d:7400", i+1))
			c.AwaitReady()
		}
		for _, i := range remote {
			mustPut(t, c.Node(i).ShardAt(1), "k", "v")
		}
	})
}
