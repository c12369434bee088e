package raft

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/node/internal/logbridge"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/raftnet"
	"github.com/oarlock/oarlock/node/internal/registry"
	"github.com/oarlock/oarlock/transport/memnet"
)

// inert is a state machine without state.
type inert struct{}

func (inert) Open(<-chan struct{}) (uint64, error)                 { return 0, nil }
func (inert) Update(es []sm.Entry) ([]sm.Entry, error)             { return es, nil }
func (inert) Lookup(any) (any, error)                              { return nil, nil }
func (inert) Sync() error                                          { return nil }
func (inert) PrepareSnapshot() (any, error)                        { return nil, nil }
func (inert) SaveSnapshot(any, io.Writer, <-chan struct{}) error   { return nil }
func (inert) RecoverFromSnapshot(io.Reader, <-chan struct{}) error { return nil }
func (inert) Close() error                                         { return nil }

// sizedFS tells a size, which the log's store asks for.
type sizedFS struct{ *raftvfs.MemFS }

func (sizedFS) GetDiskUsage(string) (raftvfs.DiskUsage, error) {
	return raftvfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

// sound injects no errors: the log's store takes only a file system of its own or one that might.
type sound struct{}

func (sound) MaybeError(raftvfs.Op) error { return nil }

// heartbeats lets a node's Raft hear only some replicas' answers to heartbeats, which are what confirms a read, and notes whose came.
type heartbeats struct {
	inner *raftnet.Factory

	mu    sync.Mutex // guards the fields below
	deaf  bool
	from  map[uint64]bool // whose answers pass although deaf
	heard map[uint64]int  // answers to reads that passed, by replica
}

func (h *heartbeats) Validate(addr string) bool { return h.inner.Validate(addr) }

func (h *heartbeats) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	return h.inner.Create(c, func(b pb.MessageBatch) {
		var pass []pb.Message
		for _, m := range b.Requests {
			if h.passes(m) {
				pass = append(pass, m)
			}
		}
		b.Requests = pass
		messages(b)
	}, chunks)
}

func (h *heartbeats) passes(m pb.Message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Type != pb.HeartbeatResp {
		return true
	}
	if h.deaf && !h.from[m.From] {
		return false
	}
	if m.Hint != 0 {
		h.heard[m.From]++
	}
	return true
}

// hear lets only the answers of the given replicas pass from now on, and forgets whose came.
func (h *heartbeats) hear(from ...uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf, h.from, h.heard = true, map[uint64]bool{}, map[uint64]int{}
	for _, r := range from {
		h.from[r] = true
	}
}

func (h *heartbeats) count(replica uint64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[replica]
}

// five are hosts of one group of five voters.
type five struct {
	t     *testing.T
	hosts map[uint64]*Host
	hears map[uint64]*heartbeats
}

func nodeOf(replica uint64) string { return fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", replica) }

func startFive(t *testing.T) *five {
	f := &five{t: t, hosts: map[uint64]*Host{}, hears: map[uint64]*heartbeats{}}
	n := memnet.New(memnet.Options{Delay: time.Millisecond})
	members := map[uint64]string{}
	for r := uint64(1); r <= 5; r++ {
		members[r] = nodeOf(r)
	}
	resolve := func(node string) (string, bool) { return node + ":1", true }
	for r := range members {
		tr, err := n.Listen(nodeOf(r) + ":1")
		if err != nil {
			t.Fatal(err)
		}
		nodes := registry.NewFactory()
		inner := raftnet.NewFactory(raftnet.Config{Transport: tr, Self: nodeOf(r), Cluster: nodeOf(9), Format: 1, Resolve: resolve, Learn: nodes.Learn})
		hears := &heartbeats{inner: inner, heard: map[uint64]int{}}
		nc := config.NodeHostConfig{NodeHostDir: fmt.Sprintf("/%d", r), RTTMillisecond: 50, RaftAddress: nodeOf(r), NodeHostID: nodeOf(r), DeploymentID: 7}
		nc.Expert.FS, nc.Expert.LogDB = raftvfs.Wrap(sizedFS{raftvfs.NewStrictMem()}, sound{}), logStore()
		nc.Expert.NodeRegistryFactory, nc.Expert.TransportFactory = nodes, hears
		nh, err := dragonboat.NewNodeHost(nc)
		if err != nil {
			t.Fatal(err)
		}
		h := &Host{
			c:    Config{ElectionTimeout: time.Second, Machine: func(uint64, uint64) sm.IOnDiskStateMachine { return inert{} }},
			tick: Tick(time.Second), nh: nh, net: inner, replicas: map[uint64]*started{},
		}
		f.hosts[r], f.hears[r] = h, hears
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			h.Wait()
		})
		if err := h.Start(1, r, members, false); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// leader waits until one of the hosts leads.
func (f *five) leader() uint64 {
	f.t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		for r, h := range f.hosts {
			if h.View(1).Self {
				return r
			}
		}
	}
	f.t.Fatal("no leader within 30 s")
	return 0
}

// change is the group's config-change id, which a removal must name.
func (f *five) change(leader uint64) uint64 {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	m, err := f.hosts[leader].nh.SyncGetShardMembership(ctx, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	return m.ConfigChangeID
}

// reading begins a read on the leader; the channel gets its end.
func (f *five) reading(leader uint64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f.hosts[leader].Read(f.t.Context(), 1, 500*time.Millisecond) }() // stops when the read completes or times out
	return done
}

// dragonboat counts the answer of a voter that was removed while the read was pending: in a group of five a read completes with the answer of
// one of the four voters that are left, where two are needed beside the leader. A confirmation made of such a read is refused, since the group's
// config-change id moved. With the same answers and nobody removed no read completes.
func TestDragonboat_CompletesAReadWithARemovedVoter(t *testing.T) {
	defer logbridge.Attach(hclog.NewNullLogger())() // else dragonboat prints
	for _, removes := range []bool{false, true} {
		t.Run(fmt.Sprintf("Removed=%v", removes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFive(t)
				leader := f.leader()
				time.Sleep(time.Second) // its first entry is committed everywhere
				removed, left := leader%5+1, (leader+1)%5+1
				host, hears := f.hosts[leader], f.hears[leader]
				change := f.change(leader)
				before := host.View(1)
				hears.hear(removed)
				read := f.reading(leader)
				time.Sleep(20 * time.Millisecond)
				if hears.count(removed) == 0 {
					t.Fatal("the voter to be removed did not answer the read")
				}
				if removes {
					rs, err := host.nh.RequestDeleteReplica(1, removed, change, 2*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					if res := <-rs.ResultC(); !res.Completed() {
						t.Fatalf("remove a voter: %v", res)
					}
					rs.Release()
					hears.hear(left)
				}
				err := <-read
				after := host.View(1)
				if !after.Self || after.Term != before.Term {
					t.Fatalf("the leader changed: %+v became %+v", before, after)
				}
				if completed := err == nil; completed != removes {
					t.Fatalf("read: got %v, want it completed: %v", err, removes)
				}
				if !removes {
					return
				}
				if hears.count(removed) != 0 || hears.count(left) == 0 {
					t.Errorf("got %d answers of the removed voter and %d of another after the removal, want none and some", hears.count(removed), hears.count(left))
				}
				if owner.Confirmed(before, after) {
					t.Errorf("the read counts as a confirmation: %+v, %+v", before, after)
				}
			})
		})
	}
}
