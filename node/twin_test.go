package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/transport/memnet"
)

// copied is a machine with a copy of this one's disks. later says that the copy's next start counts as one after the original's present one, as
// it does when a running node is copied.
func (m *machine) copied(t *testing.T, later bool) *machine {
	t.Helper()
	c := newMachine(t, m.net)
	if _, err := vfs.Clone(m.fs, c.fs, "/data", "/data"); err != nil {
		t.Fatal(err)
	}
	if _, err := raftvfs.Clone(m.raft, c.raft, "/data", "/data"); err != nil {
		t.Fatal(err)
	}
	if later {
		h := &home{fs: c.fs, dir: "/data"}
		if err := h.load(); err != nil {
			t.Fatal(err)
		}
		h.id.Incarnation++
		if err := h.save(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// marked says whether the directory refuses to be started.
func (m *machine) marked(t *testing.T) bool {
	t.Helper()
	f, err := m.fs.Open("/data/COPIED")
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || !bytes.Contains(b, []byte("one of two copies")) {
		t.Errorf("the mark says %q, %v", b, err)
	}
	return true
}

// wantStopped waits until the node has failed for being a copy, and its directory is marked.
func (m *machine) wantStopped(t *testing.T, n *Node) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("%s goes on", n.Addr())
	}
	mustClose(t, n)
	if err := n.Err(); !errors.Is(err, ErrDirLocked) || !m.marked(t) {
		t.Errorf("%s: got %v, marked %v, want ErrDirLocked and a mark", n.Addr(), err, m.marked(t))
	}
}

// founded is a cluster of size nodes, each with a replica of everything, and one machine more with a copy of the first one's disks. later: the
// nodes run again, and the copy's start will be a later one than the first node's; else they are down, and the starts will be equal.
func founded(t *testing.T, net *memnet.Network, size int, later bool) (machines []*machine, open func(i, addr int) *Node, nodes []*Node) {
	t.Helper()
	for range size {
		machines = append(machines, newMachine(t, net))
	}
	open = func(i, addr int) *Node {
		return machines[i].open(t, memAddr(addr), func(c *Config) {
			c.Bootstrap, c.Replicas = size, size
			for k := range size {
				c.Join = append(c.Join, memAddr(k))
			}
		})
	}
	start := func() {
		nodes = nil
		for i := range size {
			nodes = append(nodes, open(i, i))
		}
		awaitReady(t, nodes...)
	}
	start()
	for _, n := range nodes {
		mustClose(t, n)
	}
	if later {
		start()
	}
	return append(machines, machines[0].copied(t, later)), open, nodes
}

// The copy of a running node, whose start would count as a later one, finds the original where it was and does not start; the original goes on.
func TestIdentity_CopyOfRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machines, _, nodes := founded(t, memnet.New(memnet.Options{Delay: time.Millisecond}), 3, true)
		m := machines[3]
		for range 2 {
			n, err := m.tryOpen(t, memAddr(3), nil)
			if err == nil {
				mustClose(t, n)
				t.Fatal("the copy was opened")
			}
			if !errors.Is(err, ErrDirLocked) || !m.marked(t) {
				t.Errorf("open the copy: got %v, marked %v, want ErrDirLocked and a mark", err, m.marked(t))
			}
		}
		time.Sleep(10 * time.Second)
		awaitReady(t, nodes...)
	})
}

// A later start that cannot see that its former process runs is listened to, so the former stops; when the two meet both do, since the
// later one is the copy. The cluster goes on in any case.
func TestIdentity_CopyIsLater(t *testing.T) {
	for name, meets := range map[string]bool{"never meets the original": false, "meets it later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memnet.New(memnet.Options{Delay: time.Millisecond})
				machines, open, nodes := founded(t, net, 3, true)
				net.Drop(memAddr(0), memAddr(3))
				if meets {
					net.Drop(memAddr(1), memAddr(3))
					net.Drop(memAddr(2), memAddr(3))
				}
				second := open(3, 3)
				if meets {
					time.Sleep(20 * time.Second)
					net.Heal(memAddr(0), memAddr(3))
					machines[3].wantStopped(t, second)
					if err := nodes[0].Err(); err != nil {
						t.Errorf("the original, which nobody refused: %v", err)
					}
				} else {
					machines[0].wantStopped(t, nodes[0])
					if err := second.Err(); err != nil {
						t.Errorf("the later start, which nobody refused: %v", err)
					}
				}
				if _, err := nodes[1].ShardAt(1).Put(t.Context(), "k", nil, nil); err != nil {
					t.Errorf("put at another node: %v", err)
				}
			})
		})
	}
}

// Two copies that were heard by different nodes, in a network that was parted meanwhile, both stop when it heals, since each of them may
// have voted. The one whose mark the operator takes away comes back.
func TestIdentity_CopiesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New(memnet.Options{Delay: time.Millisecond})
		machines, open, _ := founded(t, net, 5, false)
		parts := [][]int{{0, 1}, {5, 2}, {3, 4}} // none of them a majority
		for i, part := range parts {
			for _, other := range parts[:i] {
				for k := range 4 {
					net.Drop(memAddr(part[k/2]), memAddr(other[k%2]))
				}
			}
		}
		var nodes []*Node
		for i := range 6 {
			nodes = append(nodes, open(i, i))
		}
		time.Sleep(20 * time.Second)
		for _, n := range nodes {
			if err := n.Err(); err != nil {
				t.Errorf("%s stopped while nobody could know of the other: %v", n.Addr(), err)
			}
		}
		net.HealAll()
		machines[0].wantStopped(t, nodes[0])
		machines[5].wantStopped(t, nodes[5])
		if err := machines[5].fs.Remove("/data/COPIED"); err != nil {
			t.Fatal(err)
		}
		kept := open(5, 6) // and at another address
		awaitReady(t, append(nodes[1:5], kept)...)
		if _, err := machines[0].tryOpen(t, memAddr(0), nil); !errors.Is(err, ErrDirLocked) {
			t.Errorf("open the other: got %v, want ErrDirLocked", err)
		}
		if kept.ID() != nodes[0].ID() || !slices.Equal(kept.cluster.Load().plan.GetNodes(), nodes[1].cluster.Load().plan.GetNodes()) {
			t.Errorf("the one that was kept is %s", fmt.Sprint(kept.ID()))
		}
	})
}
