package raftnet

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport/memnet"
)

// Batches arrive whole, in order, and as they were sent, large ones too.
func TestConn_Delivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		c := a.connect(nodeB)
		large := batchOf(nodeA, 2)
		large.Requests[0].Entries[0].Cmd = bytes.Repeat([]byte("x"), 5<<20)
		for _, sent := range []pb.MessageBatch{batchOf(nodeA, 1), large, batchOf(nodeA, 3)} {
			if err := c.SendMessageBatch(sent); err != nil {
				t.Fatal(err)
			}
			got := <-b.batches
			if want := sent.Requests[0].Entries[0].Cmd; !bytes.Equal(got.Requests[0].Entries[0].Cmd, want) {
				t.Fatalf("got %d bytes, want the %d that were sent", len(got.Requests[0].Entries[0].Cmd), len(want))
			}
			got.Requests[0].Entries[0].Cmd, sent.Requests[0].Entries[0].Cmd = nil, nil
			if diff := cmp.Diff(sent, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(pb.Snapshot{})); diff != "" {
				t.Fatal(diff)
			}
		}
		if s := a.f.Stats(); s.Sent != 3 || s.Dropped != 0 {
			t.Errorf("got %+v, want 3 sent, none dropped", s)
		}
	})
}

// The first message after GetConnection arrives: an election's votes are not lost to a dial that is under way.
func TestConn_FirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, a, b := pair(t)
		n.Delay("a:1", "b:1", 20*time.Millisecond, 0)
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)
	})
}

// A peer that cannot be reached is no error and does not block; when it is back messages flow within a redial.
func TestConn_RedialAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, a, b := pair(t)
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)

		n.Partition("a:1", "b:1")
		begun := time.Now()
		for i := range uint64(1000) {
			a.send(c, nodeA, 100+i)
		}
		if took := time.Since(begun); took > 2*stallLimit {
			t.Errorf("1000 sends to nobody took %v", took)
		}
		time.Sleep(time.Minute)
		n.Heal("a:1", "b:1")
		if took := a.flows(c, nodeA, b, 5*time.Second); took > redialMax+50*time.Millisecond {
			t.Errorf("messages flowed %v after the heal, want at most %v", took, redialMax)
		}
		if s := a.f.Stats(); s.Broken == 0 || s.Dropped == 0 {
			t.Errorf("got %+v, want broken and dropped counted", s)
		}
	})
}

// A node that restarts at another address gets its messages there, whether its old address refuses or swallows (case 109).
func TestConn_AddressChange(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, addrs, a, b := pair(t)
			c := a.connect(nodeB)
			a.send(c, nodeA, 1)
			b.expect(1, time.Second)

			if silent {
				n.Drop("a:1", "b:1")
			}
			b.close()
			moved := newHost(t, listen(t, n, "b:2"), addrs, nodeB, clusterX)
			if took := a.flows(c, nodeA, moved, 10*time.Second); took > time.Second {
				t.Errorf("silent %v: messages flowed after %v, want at most 1s", silent, took)
			}
		})
	}
}

// The address of a node may be unknown at first.
func TestConn_UnknownAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b := newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterX)
		a.flows(c, nodeA, b, time.Second)
	})
}

// A silent cut blocks no send for long, is noticed without a word from TCP, also when nothing is sent, and heals by itself.
func TestConn_SilentCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, a, b := pair(t)
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)

		n.Drop("a:1", "b:1")
		big := batchOf(nodeA, 2)
		big.Requests[0].Entries[0].Cmd = make([]byte, 1<<20)
		for range 20 {
			begun := time.Now()
			if err := c.SendMessageBatch(big); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took > 2*stallLimit {
				t.Errorf("a send into a cut took %v", took)
			}
		}
		n.Heal("a:1", "b:1")
		a.flows(c, nodeA, b, 5*time.Second)

		broken := a.f.Stats().Broken
		n.Drop("a:1", "b:1")
		time.Sleep(silenceLimit + 2*time.Second)
		if got := a.f.Stats().Broken; got != broken+1 {
			t.Errorf("got %d broken connections after idle silence, want %d", got, broken+1)
		}
		n.Heal("a:1", "b:1")
		if took := a.flows(c, nodeA, b, 5*time.Second); took > dialTimeout+redialMax {
			t.Errorf("messages flowed %v after the heal", took)
		}
	})
}

// An idle connection stays up: pings are answered.
func TestConn_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		c := a.connect(nodeB)
		time.Sleep(10 * time.Minute)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)
		if s := a.f.Stats(); s.Dials != 1 || s.Broken != 0 {
			t.Errorf("got %+v, want one dial and nothing broken", s)
		}
	})
}
