package raftnet

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport/memnet"
)

func chunkOf(id, count uint64, size int) pb.Chunk {
	return pb.Chunk{
		ShardID: 3, ReplicaID: 2, From: 1, ChunkId: id, ChunkCount: count, DeploymentId: 7, BinVer: raftio.TransportBinVersion,
		Filepath: "snapshot", ChunkSize: uint64(size), Data: bytes.Repeat([]byte{byte(id)}, size),
	}
}

func (h *host) snapshotTo(node string) raftio.ISnapshotConnection {
	h.t.Helper()
	c, err := h.net.GetSnapshotConnection(context.Background(), node)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

// Success of a chunk means that the receiver has taken it: nothing is lost by closing the connection right after the last.
func TestSnapshot_Delivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		c := a.snapshotTo(nodeB)
		for i := range uint64(5) {
			if err := c.SendChunk(chunkOf(i, 5, 2<<20)); err != nil {
				t.Fatal(err)
			}
			if got := len(b.chunks); got != int(i)+1 {
				t.Fatalf("got %d chunks taken after %d successes", got, i+1)
			}
		}
		c.Close()
		for i := range uint64(5) {
			if got := <-b.chunks; got.ChunkId != i || !bytes.Equal(got.Data, bytes.Repeat([]byte{byte(i)}, 2<<20)) {
				t.Errorf("got chunk %d of %d bytes, want %d", got.ChunkId, len(got.Data), i)
			}
		}
		if s := a.f.Stats(); s.SentChunks != 5 || b.f.Stats().TakenChunks != 5 {
			t.Errorf("got %+v and %+v, want 5 chunks", s, b.f.Stats())
		}
	})
}

// A chunk that the receiver refuses, or panics over because its disk is full, is an error at the sender, and the next
// snapshot gets through (case 94).
func TestSnapshot_Refused(t *testing.T) {
	for _, how := range []string{"refuse", "panic"} {
		synctest.Test(t, func(t *testing.T) {
			_, _, a, b := pair(t)
			b.onChunk = func(pb.Chunk) bool {
				if how == "panic" {
					panic("no space left on device")
				}
				return false
			}
			c := a.snapshotTo(nodeB)
			if err := c.SendChunk(chunkOf(0, 2, 10)); !errors.Is(err, errChunkRefused) {
				t.Errorf("%s: got %v, want errChunkRefused", how, err)
			}
			if err := c.SendChunk(chunkOf(1, 2, 10)); err == nil {
				t.Errorf("%s: the connection goes on", how)
			}
			c.Close()
			synctest.Wait()
			b.onChunk = nil
			again := a.snapshotTo(nodeB)
			if err := again.SendChunk(chunkOf(0, 1, 10)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A receiver that cannot be reached, is unknown or goes away is an error, in bounded time.
func TestSnapshot_Unreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs, a, b := pair(t)
		if _, err := a.net.GetSnapshotConnection(t.Context(), nodeC); !errors.Is(err, errUnknownAddr) {
			t.Errorf("unknown: got %v", err)
		}
		c := a.snapshotTo(nodeB)
		n.Drop("a:1", "b:1")
		begun := time.Now()
		if err := c.SendChunk(chunkOf(0, 1, 2<<20)); err == nil {
			t.Error("cut: got nil, want an error")
		}
		if took := time.Since(begun); took > chunkStall+ackTimeout {
			t.Errorf("cut: took %v", took)
		}
		begun = time.Now()
		if _, err := a.net.GetSnapshotConnection(t.Context(), nodeB); err == nil || time.Since(begun) > 2*time.Second {
			t.Errorf("cut: got %v after %v, want an error within the dial's time", err, time.Since(begun))
		}
		n.HealAll()
		again := a.snapshotTo(nodeB)
		b.close()
		if err := again.SendChunk(chunkOf(0, 1, 10)); err == nil {
			t.Error("gone: got nil, want an error")
		}
		addrs.set(nodeB, "nobody:1")
		if _, err := a.net.GetSnapshotConnection(t.Context(), nodeB); err == nil {
			t.Error("refused: got nil, want an error")
		}
	})
}

// The end of the caller's context ends a chunk that is being sent.
func TestSnapshot_Context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t)
		release := make(chan struct{})
		b.onChunk = func(pb.Chunk) bool { <-release; return true }
		ctx, cancel := context.WithCancel(t.Context())
		c, err := a.net.GetSnapshotConnection(ctx, nodeB)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		if err := c.SendChunk(chunkOf(0, 1, 10)); err == nil || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v, want an error after 1s", err, time.Since(begun))
		}
		close(release)
	})
}

// A pause of minutes between chunks, while the snapshot is made, breaks nothing.
func TestSnapshot_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t)
		c := a.snapshotTo(nodeB)
		for i := range uint64(2) {
			if err := c.SendChunk(chunkOf(i, 2, 10)); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
		}
	})
}

// Close during a transfer waits for the handler and leaves nothing behind; the sender gets an error.
func TestSnapshot_CloseDuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, addrs := memnet.New(memnet.Options{}), new(book)
		a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
		b := newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterX)
		running, release := make(chan struct{}), make(chan struct{})
		b.onChunk = func(pb.Chunk) bool { close(running); <-release; return true }
		c := a.snapshotTo(nodeB)
		sent := make(chan error, 1)
		go func() { sent <- c.SendChunk(chunkOf(0, 1, 10)) }() // stops with the send; the test receives
		<-running
		closed := make(chan struct{})
		go func() { // stops when Close returns; the test receives
			defer close(closed)
			b.close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while a handler ran")
		default:
		}
		close(release)
		<-closed
		if err := <-sent; err == nil {
			t.Error("got nil from the interrupted send, want an error")
		}
	})
}
