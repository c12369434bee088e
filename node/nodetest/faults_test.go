package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// three runs f with a cluster of three that is ready.
func three(t *testing.T, o *nodetest.Options, f func(t *testing.T, c *nodetest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, o)
		c.AwaitReady()
		f(t, c)
	})
}

func put(t *testing.T, c *nodetest.Cluster, i int, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Node(i).ShardAt(1).Put(ctx, key, []byte(value), nil); err != nil {
		t.Fatalf("put through node %d: %v", i, err)
	}
}

func get(t *testing.T, c *nodetest.Cluster, i int, key, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.Node(i).ShardAt(1).Get(ctx, key)
	if err != nil || string(r.Value) != want {
		t.Errorf("get through node %d: got %q, %v, want %q", i, r.Value, err, want)
	}
}

// What was acknowledged outlives a loss of power of all nodes at one instant, again and again.
func TestCluster_KillAll(t *testing.T) {
	three(t, nil, func(t *testing.T, c *nodetest.Cluster) {
		for k := range 10 {
			put(t, c, k%3, "k", fmt.Sprint(k))
			for i := range 3 {
				c.Kill(i)
			}
			for i := range 3 {
				c.Restart(i)
			}
			c.AwaitReady()
			get(t, c, (k+1)%3, "k", fmt.Sprint(k))
		}
	})
}

// A killed node keeps what it wrote and did not sync only if its disk is told so, and its disk's faults outlive it.
func TestDisk_LoseUnsynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 1, nil)
		c.AwaitReady()
		c.Disk(0).LoseUnsynced(false)
		put(t, c, 0, "k", "v")
		c.Kill(0)
		c.Restart(0)
		get(t, c, 0, "k", "v")
		c.Kill(0)
		c.Disk(0).Fail(errors.New("broken"))
		if err := c.TryRestart(0); err == nil {
			t.Error("start on a broken disk: got nil, want an error")
		}
		c.Disk(0).Heal()
		c.Restart(0)
		get(t, c, 0, "k", "v")
	})
}

// A node whose disk breaks, is full or hangs holds nobody up: the others go on, no process ends, and with a sound disk it comes back.
func TestDisk_Fail(t *testing.T) {
	for name, hurt := range map[string]func(*nodetest.Disk){
		"Broken": func(d *nodetest.Disk) { d.Fail(errors.New("broken")) },
		"Full":   func(d *nodetest.Disk) { d.Full(true) },
		"Hangs":  (*nodetest.Disk).Stall,
	} {
		t.Run(name, func(t *testing.T) {
			three(t, nil, func(t *testing.T, c *nodetest.Cluster) {
				i := c.AwaitOwner(1)
				hurt(c.Disk(i))
				put(t, c, (i+1)%3, "k", "v")
				get(t, c, (i+2)%3, "k", "v")
				c.Kill(i)
				c.Disk(i).Heal()
				c.Restart(i)
				c.AwaitReady()
				get(t, c, i, "k", "v")
			})
		})
	}
}

// A node comes back at another address, and as a new one with an empty disk, and the cluster takes it.
func TestCluster_MoveAndWipe(t *testing.T) {
	three(t, nil, func(t *testing.T, c *nodetest.Cluster) {
		put(t, c, 0, "k", "v")
		id := c.Node(0).ID()
		c.Kill(0)
		c.RestartAt(0, "127.0.9.9:7500")
		c.AwaitReady()
		get(t, c, 0, "k", "v")
		if c.Node(0).ID() != id || c.Node(0).Addr() != "127.0.9.9:7500" {
			t.Errorf("got node %s at %s, want %s at the new address", c.Node(0).ID(), c.Node(0).Addr(), id)
		}
		c.Kill(2)
		c.Wipe(2)
		c.Restart(2)
		get(t, c, 2, "k", "v")
		if c.Node(2).ID() == id {
			t.Error("a wiped node kept its id")
		}
	})
}

// A clone has the node's disk, so its identity: it is refused beside the node.
func TestCluster_Clone(t *testing.T) {
	three(t, nil, func(t *testing.T, c *nodetest.Cluster) {
		put(t, c, 0, "k", "v")
		c.Close(2)
		copied := c.Clone(2)
		c.MayFail(copied)
		c.Restart(2)
		err := c.TryRestart(copied)
		if err == nil {
			select {
			case <-c.Node(copied).Done():
			case <-time.After(time.Minute):
				t.Fatal("the clone runs on beside the node")
			}
			err = c.Node(copied).Err()
		}
		if !errors.Is(err, node.ErrDirLocked) {
			t.Errorf("got %v, want ErrDirLocked", err)
		}
		put(t, c, 2, "k", "w")
	})
}

// Names given to nodes in Join resolve as the test says.
func TestCluster_Host(t *testing.T) {
	three(t, nil, func(t *testing.T, c *nodetest.Cluster) {
		c.Host("app.internal", "127.0.0.1", "127.0.0.2")
		i := c.Add(func(c *node.Config) {
			c.NoReplicas = true
			c.Join = []string{"app.internal:7400"}
		})
		put(t, c, i, "k", "v")
	})
}

// Silent and loud parts of the network, delays and losses hold up a majority no longer than an election, and a minority gets nothing done.
func TestCluster_Network(t *testing.T) {
	three(t, &nodetest.Options{Seed: 7}, func(t *testing.T, c *nodetest.Cluster) {
		for name, part := range map[string]func(i int){
			"partition": func(i int) { c.Partition([]int{i}) },
			"isolate":   c.Isolate,
			"reject":    func(i int) { c.Reject(i, (i+1)%3); c.Reject(i, (i+2)%3) },
			"one way":   func(i int) { c.PartitionOneWay(i, (i+1)%3); c.PartitionOneWay(i, (i+2)%3) },
		} {
			i := c.AwaitOwner(1)
			part(i)
			put(t, c, (i+1)%3, "k", name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.Node(i).ShardAt(1).Put(ctx, "k", []byte("minority"), nil)
			cancel()
			if !errors.Is(err, node.ErrNoQuorum) && !errors.Is(err, node.ErrUnknown) {
				t.Errorf("%s: put of a minority: got %v, want ErrNoQuorum or ErrUnknown", name, err)
			}
			c.Heal()
			c.AwaitReady()
		}
		for i := range 3 {
			c.Loss(i, (i+1)%3, 0.2)
			c.Delay(i, (i+1)%3, 20*time.Millisecond, 20*time.Millisecond)
		}
		put(t, c, 0, "k", "slow")
		c.Heal()
		get(t, c, 1, "k", "slow")
	})
}
