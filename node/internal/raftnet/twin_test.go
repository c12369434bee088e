package raftnet

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/transport/memnet"
)

// A process whose node another process speaks for gets nothing through, over new connections and over those it has, and is told;
// messages and snapshots alike.
func TestNet_Twin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		var known, told atomic.Uint64
		known.Store(1)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX, func(c *Config) {
			c.Boot = Boot{5, 1}
			c.Refused = func(peer string) {
				if peer != nodeB {
					t.Errorf("told by %s, want %s", peer, nodeB)
				}
				told.Add(1)
			}
		})
		b := newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterX, func(c *Config) {
			c.Admit = func(node string, got Boot) bool {
				if node != nodeA || got.Incarnation != 5 {
					t.Errorf("asked about start %d of %s", got.Incarnation, node)
				}
				return got.Nonce == known.Load()
			}
		})
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)
		snap, err := a.net.GetSnapshotConnection(t.Context(), nodeB)
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Close()
		if err := snap.SendChunk(chunkOf(0, 2, 10)); err != nil {
			t.Fatal(err)
		}
		if told.Load() != 0 {
			t.Error("told while it was the right one")
		}

		known.Store(2) // the other process was heard
		if err := snap.SendChunk(chunkOf(1, 2, 10)); err == nil {
			t.Error("a chunk came through")
		}
		for i := range uint64(5) {
			a.send(c, nodeA, 2+i)
			time.Sleep(time.Second)
		}
		if got := len(b.batches) + len(b.chunks); got != 1 { // the chunk from before
			t.Errorf("%d messages and chunks came through", got-1)
		}
		if told.Load() == 0 {
			t.Error("it was not told")
		}
		if snap, err := a.net.GetSnapshotConnection(t.Context(), nodeB); err == nil {
			snap.Close()
			t.Error("a snapshot may be sent")
		}
	})
}

// Messages do not go to another process of the node than the one that is known, though it sits at the node's address.
func TestNet_TwinAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX, func(c *Config) {
			c.Admit = func(_ string, b Boot) bool { return b == Boot{5, 1} }
		})
		b := newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterX, func(c *Config) { c.Boot = Boot{5, 2} })
		c := a.connect(nodeB)
		for i := range uint64(5) {
			a.send(c, nodeA, i)
			time.Sleep(time.Second)
		}
		if len(b.batches) > 0 {
			t.Error("a message went to the other process")
		}
	})
}
