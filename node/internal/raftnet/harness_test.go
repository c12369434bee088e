package raftnet

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

const (
	nodeA    = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	nodeB    = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
	nodeC    = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
	clusterX = "11111111-1111-4111-8111-111111111111"
	clusterY = "22222222-2222-4222-8222-222222222222"
)

// A book says at which address each node is.
type book struct {
	mu    sync.Mutex
	addrs map[string]string
}

func (b *book) set(node, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addrs == nil {
		b.addrs = map[string]string{}
	}
	b.addrs[node] = addr
}

func (b *book) resolve(node string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	addr, ok := b.addrs[node]
	return addr, ok
}

// A host is a node with handlers that note what arrives.
type host struct {
	t   *testing.T
	tr  transport.Transport
	f   *Factory
	net raftio.ITransport
	log safeBuffer

	batches chan pb.MessageBatch
	chunks  chan pb.Chunk
	onBatch func(pb.MessageBatch) // replaces noting, if set before a batch arrives
	onChunk func(pb.Chunk) bool
}

// safeBuffer is a buffer that the logger's goroutines and the test share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newHost starts a host of cluster at a transport and writes its address into the book. The test's end closes it.
func newHost(t *testing.T, tr transport.Transport, b *book, node, cluster string, edit ...func(*Config)) *host {
	t.Helper()
	h := &host{t: t, tr: tr, batches: make(chan pb.MessageBatch, 4096), chunks: make(chan pb.Chunk, 64)}
	c := Config{
		Transport: tr, Self: node, Cluster: cluster, Format: 1, Resolve: b.resolve,
		Logger: hclog.New(&hclog.LoggerOptions{Output: &h.log, Level: hclog.Warn}),
	}
	for _, e := range edit {
		e(&c)
	}
	h.f = NewFactory(c)
	h.net = h.f.Create(config.NodeHostConfig{}, func(m pb.MessageBatch) {
		if h.onBatch != nil {
			h.onBatch(m)
			return
		}
		h.batches <- m
	}, func(c pb.Chunk) bool {
		if h.onChunk != nil {
			return h.onChunk(c)
		}
		h.chunks <- c
		return true
	})
	if err := h.net.Start(); err != nil {
		t.Fatal(err)
	}
	b.set(node, tr.Addr())
	t.Cleanup(h.close)
	return h
}

func (h *host) close() {
	if err := h.net.Close(); err != nil {
		h.t.Error(err)
	}
	if err := h.tr.Close(); err != nil {
		h.t.Error(err)
	}
}

// connect asks for a connection to node; the test's end closes it.
func (h *host) connect(node string) raftio.IConnection {
	h.t.Helper()
	c, err := h.net.GetConnection(context.Background(), node)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

// send sends one message with the given index from node, and fails the test on an error: there must never be one.
func (h *host) send(c raftio.IConnection, node string, index uint64) {
	h.t.Helper()
	if err := c.SendMessageBatch(batchOf(node, index)); err != nil {
		h.t.Errorf("send %d: %v", index, err)
	}
}

// expect waits for the batch with the given index and fails the test if it is not there within limit.
func (h *host) expect(index uint64, limit time.Duration) {
	h.t.Helper()
	after := time.NewTimer(limit)
	defer after.Stop()
	for {
		select {
		case m := <-h.batches:
			if m.Requests[0].LogIndex == index {
				return
			}
		case <-after.C:
			h.t.Errorf("message %d did not arrive within %v", index, limit)
			return
		}
	}
}

// flows sends until something sent now arrives, and returns how long that took, or fails the test after limit.
func (h *host) flows(c raftio.IConnection, from string, to *host, limit time.Duration) time.Duration {
	h.t.Helper()
	begun := time.Now()
	for index := uint64(1 << 20); time.Since(begun) < limit; index++ {
		h.send(c, from, index)
		select {
		case m := <-to.batches:
			if m.Requests[0].LogIndex >= 1<<20 {
				return time.Since(begun)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	h.t.Errorf("no message arrived within %v", limit)
	return limit
}

func batchOf(node string, index uint64) pb.MessageBatch {
	return pb.MessageBatch{
		SourceAddress: node, DeploymentId: 7, BinVer: raftio.TransportBinVersion,
		Requests: []pb.Message{{Type: pb.Replicate, To: 2, From: 1, ShardID: 3, Term: 4, LogIndex: index, Entries: []pb.Entry{{Index: index + 1, Term: 4, Cmd: []byte("cmd")}}}},
	}
}

// listen opens an endpoint of a network in memory.
func listen(t *testing.T, n *memnet.Network, addr string) *memnet.Endpoint {
	t.Helper()
	e, err := n.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// pair starts hosts a and b of one cluster on a network in memory.
func pair(t *testing.T) (n *memnet.Network, addrs *book, a, b *host) {
	t.Helper()
	n, addrs = memnet.New(memnet.Options{}), new(book)
	a = newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
	b = newHost(t, listen(t, n, "b:1"), addrs, nodeB, clusterX)
	return n, addrs, a, b
}
