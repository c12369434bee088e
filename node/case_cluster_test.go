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

// wantValues reads keys k0 to k(n-1) through node i, each with its number.
func wantValues(t *testing.T, c *nodetest.Cluster, i, n int) {
	t.Helper()
	for k := range n {
		r, err := c.Node(i).ShardAt(1).Get(within(t, 30*time.Second), fmt.Sprintf("k%d", k))
		if err != nil || string(r.Value) != fmt.Sprint(k) {
			t.Errorf("get k%d at node %d: got %q, %v, want %d", k, i, r.Value, err, k)
		}
	}
}

func putValues(t *testing.T, c *nodetest.Cluster, n int) {
	t.Helper()
	for k := range n {
		mustPut(t, c.Node(k%c.Len()).ShardAt(1), fmt.Sprintf("k%d", k), fmt.Sprint(k))
	}
}

// When all nodes lose power at one instant, and what was not synced with it, nothing that was acknowledged is lost (case 64).
func TestCase064_AllLosePower(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for round := range 3 {
			n := 10 * (round + 1)
			putValues(t, c, n)
			for i := range 3 {
				c.Kill(i)
				c.Reboot(i)
			}
			for i := range 3 {
				c.Restart(i)
			}
			wantValues(t, c, round, n)
		}
	})
}

// A node comes back at a new address at once, after it left as after it was killed; it is alive once, and Raft follows (case 69).
func TestCase069_NewAddress(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		putValues(t, c, 3)
		for round, stop := range []func(int){func(i int) { c.Shutdown(i) }, c.Kill, c.Close} {
			id := c.Node(2).ID()
			stop(2)
			addr := fmt.Sprintf("127.9.0.%d:7400", round+1)
			c.RestartAt(2, addr)
			c.Await("all to see the node at its new address", func() bool {
				for _, n := range c.Nodes() {
					for m := range n.Members() {
						if m.ID == id && (m.Addr != addr || m.State != node.MemberAlive) {
							return false
						}
					}
				}
				return true
			})
			c.AwaitReady()
			c.Kill(0) // the moved node is needed for the majority now
			wantValues(t, c, 2, 3)
			c.Restart(0)
			c.AwaitReady()
		}
	})
}

// A node that shut down is closed for good, and opens again at the same address in the same process, as often as one likes (case 71).
func TestCase071_OpenAgain(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for range 10 {
			old := c.Node(1)
			c.Shutdown(1)
			if _, err := old.ShardAt(1).Get(t.Context(), "k"); !errors.Is(err, node.ErrClosed) {
				t.Errorf("get at a closed node: got %v, want ErrClosed", err)
			}
			if err := old.Shutdown(t.Context()); err != nil {
				t.Errorf("shutdown again: %v", err)
			}
			c.Restart(1)
			c.AwaitReady()
		}
	})
}

// A node that shuts down is Left for every other, also when packets are lost; its locks are free by the log, not by rumour (case 72).
func TestCase072_Left(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 8
		c := nodetest.New(t, nodes, &nodetest.Options{Bootstrap: nodes})
		c.AwaitReady()
		for i := range nodes {
			for k := range i {
				c.Loss(i, k, 0.1)
			}
		}
		for gone := range 3 {
			id := c.Node(gone).ID()
			mustLock(t, c.Node(gone).ShardAt(1), "l")
			c.Shutdown(gone)
			began := time.Now()
			l := mustLock(t, c.Node(nodes-1).ShardAt(1), "l")
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("the lock of a node that left was granted after %v, want less than the session's 5 s", took)
			}
			wantErr(t, "unlock", l.Unlock(within(t, 30*time.Second)), nil)
			c.Await("all to see the node as left", func() bool {
				for _, n := range c.Nodes() {
					for m := range n.Members() {
						if m.ID == id && m.State != node.MemberLeft {
							return false
						}
					}
				}
				return true
			})
			c.Restart(gone) // or the shard may lose its majority
			c.AwaitReady()
		}
	})
}

// A node that sends and does not hear, or is slow by seconds, costs no healthy one its shards or locks (case 73).
func TestCase073_SickNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 5, &nodetest.Options{Bootstrap: 5})
		c.AwaitReady()
		time.Sleep(10 * time.Second) // until no shard moves any more
		owner := c.AwaitOwner(1)
		sick := -1
		for _, i := range others(c, owner) {
			if !slices.Contains(c.Node(owner).Status().Shards[1].Replicas, c.Node(i).ID()) {
				sick = i
			}
		}
		if sick < 0 {
			t.Fatal("every node has a replica of the shard")
		}
		o, _ := c.Node(owner).ShardAt(1).Owned()
		l := mustLock(t, c.Node((sick+1)%5).ShardAt(1), "l")
		c.Track("l", l)
		for _, i := range others(c, sick) {
			c.PartitionOneWay(i, sick)
		}
		time.Sleep(40 * time.Second)
		c.Heal()
		for _, i := range others(c, sick) {
			c.Delay(i, sick, 3*time.Second, time.Second)
		}
		time.Sleep(40 * time.Second)
		c.Heal()
		wantErr(t, "the lock of a healthy node", l.Check(), nil)
		wantErr(t, "the ownership of a healthy node", o.Check(), nil)
	})
}

// Halves that were parted for longer than gossip keeps trying are one membership again by themselves (case 77).
func TestCase077_LongPartition(t *testing.T) {
	bubble(t, 4, &nodetest.Options{Bootstrap: 4}, func(t *testing.T, c *nodetest.Cluster) {
		c.Partition([]int{0, 1}, []int{2, 3})
		time.Sleep(3 * time.Minute)
		c.Heal()
		c.Await("one membership", func() bool {
			for _, n := range c.Nodes() {
				alive := 0
				for m := range n.Members() {
					if m.State == node.MemberAlive {
						alive++
					}
				}
				if alive != 4 {
					return false
				}
			}
			return true
		})
		c.AwaitReady()
	})
}

// The disk under a node's log and state fails: its process lives, what it held is lost in time, the others go on, and it comes back
// with a sound disk (case 105).
func TestCase105_DiskFails(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		n := c.Node(owner)
		o, _ := n.ShardAt(1).Owned()
		c.MayFail(owner)
		c.Disk(owner).Fail(errors.New("disk is broken"))
		began := time.Now()
		mustPut(t, n.ShardAt(1), "k", "v") // through the next owner
		mustPut(t, c.Node((owner+1)%3).ShardAt(1), "k", "v")
		wantDone(t, "ownership", o, began, 10*time.Second)
		c.Kill(owner)
		c.Disk(owner).Heal()
		c.Restart(owner)
	})
}

// A node whose disk was wiped is a new node: it does not vote as what it was, nothing acknowledged is lost, and nothing panics
// (case 109; that it gets a replica again comes with healing).
func TestCase109_WipedDisk(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		wiped, behind := (owner+1)%3, (owner+2)%3
		c.Isolate(behind)
		for k := range 5 {
			mustPut(t, c.Node(owner).ShardAt(1), fmt.Sprintf("k%d", k), fmt.Sprint(k)) // on owner and wiped
		}
		old := c.Node(wiped).ID()
		c.Close(wiped)
		c.Wipe(wiped)
		c.Restart(wiped)
		c.Heal()
		c.Await("the wiped node to join", func() bool { return c.Node(wiped).Status().Cluster != "" })
		if id := c.Node(wiped).ID(); id == old {
			t.Errorf("the wiped node is %s still", id)
		}
		for _, sh := range c.Node(wiped).Status().Shards {
			if slices.Contains(sh.Replicas, c.Node(wiped).ID()) || !slices.Contains(sh.Replicas, old) {
				t.Errorf("shard %d: replicas %v, want the lost one and not the new node's", sh.Shard, sh.Replicas)
			}
		}
		wantValues(t, c, behind, 5)
		c.Kill(owner) // behind alone has caught up: no majority, so nothing is lost and nothing is served
		if _, err := c.Node(behind).ShardAt(1).Get(within(t, 10*time.Second), "k0"); !errors.Is(err, node.ErrNoQuorum) {
			t.Errorf("get without a majority: got %v, want ErrNoQuorum", err)
		}
		c.Restart(owner)
		wantValues(t, c, wiped, 5)
	})
}

// All nodes come back at other addresses, in any order, rolling and all at once, with the seeds and Bootstrap of the founding
// (cases 110 and 111); addresses pass from one to the other.
func TestCase110_AllAddressesNew(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			o := &nodetest.Options{Bootstrap: nodes, Config: func(_ int, c *node.Config) { c.Join, c.Bootstrap, c.Name = []string{"app.test:7400"}, nodes, "app" }}
			synctest.Test(t, func(t *testing.T) {
				o := *o
				c := nodetest.New(t, 0, &o)
				var hosts []string
				for i := range nodes {
					hosts = append(hosts, fmt.Sprintf("127.0.0.%d", i+1))
				}
				c.Host("app.test", hosts...)
				for range nodes {
					c.Add(func(c *node.Config) { c.Shards = 1 })
				}
				c.AwaitReady()
				cluster := clustersOf(c)
				putValues(t, c, 5)
				hosts = nil
				for i := range nodes { // rolling
					c.Close(i)
					hosts = append(hosts, fmt.Sprintf("127.2.0.%d", i+1))
					c.Host("app.test", hosts...)
					c.RestartAt(i, hosts[i]+":7400")
					c.AwaitReady()
				}
				for i := range nodes { // at once, the last first, each at another's old address
					c.Kill(i)
				}
				time.Sleep(20 * time.Second)
				for i := nodes - 1; i >= 0; i-- {
					c.RestartAt(i, hosts[(i+1)%nodes]+":7400")
				}
				c.AwaitReady()
				if got := clustersOf(c); !slices.Equal(got, cluster) {
					t.Errorf("clusters: got %v, want %v", got, cluster)
				}
				wantValues(t, c, nodes-1, 5)
			})
		})
	}
}

// A rolling restart as fast as Ready allows loses nothing that was acknowledged (case 115).
func TestCase115_FastRollingRestart(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		keys := 0
		for round := range nightly(4, 20) {
			for i := range 3 {
				if round%2 == 0 {
					c.Shutdown(i)
				} else {
					c.Kill(i)
				}
				at := c.Node((i + 1) % 3).ShardAt(1)
				mustPut(t, at, fmt.Sprintf("k%d", keys), fmt.Sprint(keys))
				keys++
				c.Restart(i)
				if err := c.Node(i).Ready(within(t, time.Minute)); err != nil {
					t.Fatalf("ready: %v", err)
				}
			}
		}
		wantValues(t, c, 0, keys)
	})
}

// After all nodes were killed, a majority serves as soon as it is up, in any order and without the rest (case 120).
func TestCase120_ColdStart(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {2, 0}, {1, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
				putValues(t, c, 3)
				for i := range 3 {
					c.Kill(i)
				}
				c.Restart(order[0])
				time.Sleep(7 * time.Second)
				c.Restart(order[1])
				began := time.Now()
				wantValues(t, c, order[0], 3)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("served %v after a majority was up, want 10 s at most", took)
				}
			})
		})
	}
}

// Two nodes of one name are two members, each usable.
func TestMembers_SameName(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: func(_ int, c *node.Config) { c.Name = "same" }}, func(t *testing.T, c *nodetest.Cluster) {
		ids := map[string]bool{}
		for m := range c.Node(0).Members() {
			if m.Name == "same" && m.State == node.MemberAlive {
				ids[m.ID] = true
			}
		}
		if len(ids) != 3 {
			t.Errorf("got %d members of the name, want 3", len(ids))
		}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { mustPut(t, c.Node(i).ShardAt(1), fmt.Sprint(i), "") })
		}
		wg.Wait()
	})
}
