package node_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A gate stands between one node and Raft, for shard 1.
type gate struct {
	mu      sync.Mutex // guards the fields below
	propose func(e *fsmpb.Entry, next func() error) error
	read    func(next func() error) error
}

func (g *gate) Propose(_ context.Context, shard uint64, entry []byte, next func() error) error {
	g.mu.Lock()
	f := g.propose
	g.mu.Unlock()
	if f == nil || shard != 1 {
		return next()
	}
	e := &fsmpb.Entry{}
	if err := proto.Unmarshal(entry, e); err != nil {
		return err
	}
	return f(e, next)
}

func (g *gate) Read(_ context.Context, shard uint64, next func() error) error {
	g.mu.Lock()
	f := g.read
	g.mu.Unlock()
	if f == nil || shard != 1 {
		return next()
	}
	return f(next)
}

// proposals has f stand in for each proposal from now on.
func (g *gate) proposals(f func(e *fsmpb.Entry, next func() error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.propose = f
}

// reads has f stand in for each confirmation's read from now on.
func (g *gate) reads(f func(next func() error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = f
}

// A stopped thing is on its way until it is released.
type stopped struct {
	once    sync.Once
	arrived chan struct{}
	open    chan struct{}
	entry   *fsmpb.Entry // set before arrived is closed
}

func newStopped() *stopped { return &stopped{arrived: make(chan struct{}), open: make(chan struct{})} }

// hold blocks until release. The first call closes arrived.
func (h *stopped) hold(e *fsmpb.Entry) {
	h.once.Do(func() {
		h.entry = e
		close(h.arrived)
	})
	<-h.open
}

func (h *stopped) release() { close(h.open) }

// await waits for the first call of hold.
func (h *stopped) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-h.arrived:
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s within 30 s", what)
	}
}

// holes is a cluster of three whose Raft can be held up.
type holes struct {
	*nodetest.Cluster
	t     *testing.T
	gates [4]gate // of the three, and of one that a test adds

	mu     sync.Mutex // guards inside
	inside [4]env.Inspector
}

// inHoles runs f with a cluster of three that is ready and settled.
func inHoles(t *testing.T, config func(int, *node.Config), f func(t *testing.T, h *holes)) {
	t.Helper()
	h := &holes{}
	o := &nodetest.Options{Config: config, Env: func(i int, e *env.Env) {
		e.Raft = &h.gates[i]
		inspect := e.Inspect
		e.Inspect = func(in env.Inspector) {
			inspect(in)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.inside[i] = in
		}
	}}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		h.Cluster, h.t = c, t
		f(t, h)
	})
}

func (h *holes) look(i int) env.Inspector {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inside[i]
}

func (h *holes) leads(i int) bool {
	leads, _ := h.look(i).Leads(1)
	return leads
}

func (h *holes) term(i int) uint64 {
	_, term := h.look(i).Leads(1)
	return term
}

// transfer moves Raft's leadership without a word to the owner, and waits until both nodes know. Raft forgets a request that the other
// skips, as it does while an entry is not applied there: then it is asked again.
func (h *holes) transfer(from, to int) {
	h.t.Helper()
	var asked time.Time
	h.Await("the other node to lead", func() bool {
		if time.Since(asked) > 1200*time.Millisecond && h.leads(from) {
			asked = time.Now()
			if err := h.look(from).Transfer(1, h.Node(to).ID()); err != nil {
				h.t.Errorf("transfer: %v", err)
			}
		}
		return h.leads(to) && !h.leads(from)
	})
}

// late delivers an entry through node i, as a copy that was forwarded before.
func (h *holes) late(i int, e *fsmpb.Entry) {
	h.t.Helper()
	b, err := proto.Marshal(e)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.look(i).Propose(h.t.Context(), 1, b); err != nil {
		h.t.Fatalf("deliver the late entry: %v", err)
	}
}

// claimed is the token of the last claim of shard 1 that node i has applied.
func (h *holes) claimed(i int) node.Token { return h.Node(i).Status().Shards[1].Token }

// owned is node i's ownership of shard 1, which it must have.
func (h *holes) owned(i int) node.Ownership {
	h.t.Helper()
	o, ok := h.Node(i).ShardAt(1).Owned()
	if !ok {
		h.t.Fatalf("node %d does not own the shard", i)
	}
	return o
}

// notOwner watches for d that node i does not own the shard, neither for its callbacks nor to serve calls.
func (h *holes) notOwner(i int, d time.Duration) {
	h.t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(time.Millisecond) {
		o, owned := h.Node(i).ShardAt(1).Owned()
		if owned || h.Node(i).Status().Shards[1].Owned {
			h.t.Errorf("node %d owns the shard after %v, with token %d, want that it does not", i, time.Since(began), o.Token())
			return
		}
	}
}
