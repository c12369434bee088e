package raftnet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// Two clusters never talk: no message arrives, both sides say why, and not more than once a minute (DESIGN: identity).
func TestNet_ForeignCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
		b := newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterY)
		c := a.connect(nodeB)
		for i := range uint64(50) {
			a.send(c, nodeA, i)
			time.Sleep(time.Second)
		}
		if len(b.batches) != 0 {
			t.Error("a message came through")
		}
		for _, h := range []*host{a, b} {
			if got := strings.Count(h.log.String(), "another cluster"); got != 1 {
				t.Errorf("got %d lines in the log, want 1: %s", got, h.log.String())
			}
			if h.f.Stats().Refused == 0 {
				t.Error("the refusals were not counted")
			}
		}
		if !strings.Contains(b.log.String(), clusterX) || !strings.Contains(b.log.String(), clusterY) {
			t.Errorf("the log does not name both clusters: %s", b.log.String())
		}
	})
}

// Another node at the address of a peer gets none of the peer's messages (case 110).
func TestNet_ReusedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
		other := newHost(t, listen(t, n, "b:1"), addrs, nodeC, clusterX)
		addrs.set(nodeB, "b:1")
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		time.Sleep(5 * time.Second)
		if len(other.batches) != 0 {
			t.Error("the message arrived at another node")
		}
		if !strings.Contains(a.log.String(), "another node is at the address") {
			t.Errorf("got log %s", a.log.String())
		}
	})
}

// Close may come without Start, twice, and at once with everything else; afterwards no handler runs and nothing is left
// running, which the end of the bubble checks (cases 150, 151).
func TestNet_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		var mu sync.Mutex
		closed := false
		b.onBatch = func(pb.MessageBatch) {
			mu.Lock()
			defer mu.Unlock()
			if closed {
				t.Error("a handler ran after Close")
			}
		}
		c := a.connect(nodeB)
		var senders sync.WaitGroup
		senders.Go(func() { // stops when its loop is through
			for i := range uint64(200) {
				a.send(c, nodeA, i)
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(50 * time.Millisecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() { // stops when Close returns
				if err := b.net.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		mu.Lock()
		closed = true
		mu.Unlock()
		senders.Wait()

		if err := a.net.Close(); err != nil {
			t.Error(err)
		}
		if err := a.net.Start(); !errors.Is(err, ErrClosed) {
			t.Errorf("Start after Close: got %v, want ErrClosed", err)
		}
		if _, err := a.net.GetConnection(context.Background(), nodeB); !errors.Is(err, ErrClosed) {
			t.Errorf("GetConnection after Close: got %v, want ErrClosed", err)
		}
		if _, err := a.net.GetSnapshotConnection(context.Background(), nodeB); err == nil {
			t.Error("GetSnapshotConnection after Close: got nil, want an error")
		}
		unstarted := newNet(a.f, nil, nil)
		if err := unstarted.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What is no hello is closed with one line in the log, however often it comes, and others are served on.
func TestNet_Garbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		frame := func(payload []byte) []byte {
			f, err := transport.AppendFrame(nil, payload, batchLimit)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		good := frame(hello{format: 1, cluster: clusterX, node: nodeA, meantTo: nodeB}.append(nil))
		damaged := frame([]byte("payload"))
		damaged[len(damaged)-1] ^= 1
		for _, garbage := range [][]byte{
			[]byte("GET / HTTP/1.1\r\n\r\n"),
			frame(nil),
			frame([]byte{wireVersion}),
			frame([]byte{wireVersion + 1}),
			damaged,
			append(bytes.Clone(good), damaged...),
			append(bytes.Clone(good), frame(nil)...),
			append(bytes.Clone(good), frame([]byte{99})...),
			append(bytes.Clone(good), frame([]byte{frameBatch, 0xff})...),
			append(bytes.Clone(good), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
		} {
			for _, p := range []transport.Proto{transport.Raft, transport.Snapshot} {
				c, err := a.tr.Dial(t.Context(), p, "b:1")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(garbage); err != nil {
					t.Errorf("%q: %v", garbage, err)
				}
				if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				var all [64]byte
				for err == nil {
					_, err = c.Read(all[:])
				}
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%q: connection not closed", garbage)
				}
				c.Close()
			}
		}
		if got := strings.Count(b.log.String(), "closed a connection for what it sent"); got != 1 {
			t.Errorf("got %d lines, want 1: %s", got, b.log.String())
		}
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		b.expect(1, time.Second)
	})
}

// Messages that dragonboat would panic over, or that claim to come from another node, close their connection unheard
// (case family "library harms its host").
func TestNet_Malformed(t *testing.T) {
	for name, spoil := range map[string]func(*pb.MessageBatch){
		"no receiver":      func(m *pb.MessageBatch) { m.Requests[0].To = 0 },
		"no sender":        func(m *pb.MessageBatch) { m.Requests[0].From = 0 },
		"local tick":       func(m *pb.MessageBatch) { m.Requests[0].Type = pb.LocalTick },
		"snapshot":         func(m *pb.MessageBatch) { m.Requests[0].Type = pb.InstallSnapshot },
		"unknown type":     func(m *pb.MessageBatch) { m.Requests[0].Type = 1000 },
		"negative type":    func(m *pb.MessageBatch) { m.Requests[0].Type = -1 },
		"another's source": func(m *pb.MessageBatch) { m.SourceAddress = nodeC },
		"no source":        func(m *pb.MessageBatch) { m.SourceAddress = "" },
	} {
		synctest.Test(t, func(t *testing.T) {
			_, _, a, b := pair(t)
			c := a.connect(nodeB)
			bad := batchOf(nodeA, 1)
			spoil(&bad)
			if err := c.SendMessageBatch(bad); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Second)
			if len(b.batches) != 0 || b.f.Stats().Malformed != 1 {
				t.Errorf("%s: got %d batches, %+v, want none and one malformed", name, len(b.batches), b.f.Stats())
			}
			a.flows(c, nodeA, b, 2*time.Second)
		})
	}
}

// A panic of dragonboat's handler costs the connection, not the process; the next one is served.
func TestNet_HandlerPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		first := true
		b.onBatch = func(m pb.MessageBatch) {
			if first {
				first = false
				panic("no space left on device")
			}
			b.batches <- m
		}
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		a.flows(c, nodeA, b, 2*time.Second)
		if b.f.Stats().HandlerPanics != 1 || !strings.Contains(b.log.String(), "no space left") {
			t.Errorf("got %+v and log %s", b.f.Stats(), b.log.String())
		}
	})
}

// With Learn, dragonboat's registry hears nothing of sources, and Learn hears the node that the connection proved.
func TestNet_Learn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		type learned struct {
			shard, replica uint64
			node           string
		}
		got := make(chan learned, 1)
		b.f.c.Learn = func(shard, replica uint64, node string) { got <- learned{shard, replica, node} }
		c := a.connect(nodeB)
		a.send(c, nodeA, 1)
		if diff := cmp.Diff(learned{3, 1, nodeA}, <-got, cmp.AllowUnexported(learned{})); diff != "" {
			t.Error(diff)
		}
		if m := <-b.batches; m.SourceAddress != "" {
			t.Errorf("got source %q, want none", m.SourceAddress)
		}
	})
}

// UUIDs and host:port are addresses to dragonboat; nothing else is.
func TestFactory_Validate(t *testing.T) {
	f := NewFactory(Config{})
	for addr, want := range map[string]bool{
		nodeA: true, "10.0.0.1:7400": true, "[::1]:7400": true, "host.example:1": true,
		"": false, ":7400": false, "host": false, "host:0": false, "host:70000": false, "urn:uuid:" + nodeA: false, strings.ReplaceAll(nodeA, "-", ""): false,
	} {
		if got := f.Validate(addr); got != want {
			t.Errorf("%q: got %v, want %v", addr, got, want)
		}
	}
}
