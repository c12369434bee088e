package raftnet_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	sm "github.com/lni/dragonboat/v4/statemachine"
	"github.com/lni/vfs"

	"github.com/oarlock/oarlock/node/internal/logbridge"
	"github.com/oarlock/oarlock/node/internal/raftnet"
	"github.com/oarlock/oarlock/node/internal/registry"
	"github.com/oarlock/oarlock/transport/memnet"
)

const cluster = "11111111-1111-4111-8111-111111111111"

// counter is a state machine "on disk" that counts entries: memory outlives its replica only.
type counter struct {
	mu    sync.Mutex // guards State
	State struct {
		Index uint64
		Seen  map[string]bool
	}
}

func (c *counter) Open(<-chan struct{}) (uint64, error) { return 0, nil }
func (c *counter) Sync() error                          { return nil }
func (c *counter) Close() error                         { return nil }
func (c *counter) PrepareSnapshot() (any, error)        { return nil, nil }

func (c *counter) Update(es []sm.Entry) ([]sm.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.State.Seen == nil {
		c.State.Seen = map[string]bool{}
	}
	for i := range es {
		c.State.Seen[string(es[i].Cmd)] = true
		c.State.Index = es[i].Index
		es[i].Result = sm.Result{Value: es[i].Index}
	}
	return es, nil
}

func (c *counter) Lookup(any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.State.Seen), nil
}

func (c *counter) SaveSnapshot(_ any, w io.Writer, _ <-chan struct{}) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := json.Marshal(c.State)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(b))), b...))
	return err
}

func (c *counter) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint64(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, &c.State)
}

// cast is a cluster of real NodeHosts on a network in memory.
type cast struct {
	t     *testing.T
	net   *memnet.Network
	mu    sync.Mutex // guards addrs
	addrs map[string]string
	hosts map[uint64]*dragonboat.NodeHost
	facts map[uint64]*raftnet.Factory
}

func uuidOf(replica uint64) string { return fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", replica) }

func (c *cast) resolve(node string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.addrs[node]
	return a, ok
}

// start runs replica of shard 1 at addr; members is nil for one that joins.
func (c *cast) start(replica uint64, addr string, members map[uint64]string) {
	c.t.Helper()
	tr, err := c.net.Listen(addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs[uuidOf(replica)] = tr.Addr()
	c.mu.Unlock()
	reg := registry.NewFactory()
	f := raftnet.NewFactory(raftnet.Config{Transport: tr, Self: uuidOf(replica), Cluster: cluster, Format: 1, Resolve: c.resolve, Learn: reg.Learn})
	nc := config.NodeHostConfig{NodeHostDir: fmt.Sprintf("/%d", replica), RTTMillisecond: 50, RaftAddress: uuidOf(replica), NodeHostID: uuidOf(replica), DeploymentID: 7}
	nc.Expert.FS = vfs.NewStrictMem()
	nc.Expert.LogDB = config.GetTinyMemLogDBConfig()
	nc.Expert.LogDB.Shards = 1
	nc.Expert.NodeRegistryFactory, nc.Expert.TransportFactory = reg, f
	h, err := dragonboat.NewNodeHost(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		h.Close()
		if err := tr.Close(); err != nil {
			c.t.Error(err)
		}
		f.Wait()
	})
	c.hosts[replica], c.facts[replica] = h, f
	rc := config.Config{ReplicaID: replica, ShardID: 1, ElectionRTT: 20, HeartbeatRTT: 2, IsNonVoting: members == nil, CheckQuorum: true, PreVote: true, SnapshotEntries: 50, CompactionOverhead: 5}
	if err := h.StartOnDiskReplica(members, members == nil, func(uint64, uint64) sm.IOnDiskStateMachine { return &counter{} }, rc); err != nil {
		c.t.Fatal(err)
	}
}

// leader waits until a node of those asked names a leader other than not.
func (c *cast) leader(of map[uint64]*dragonboat.NodeHost, not uint64) uint64 {
	c.t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		for _, h := range of {
			if id, _, ok, err := h.GetLeaderID(1); err == nil && ok && id != not {
				return id
			}
		}
	}
	c.t.Fatal("no leader within 30s")
	return 0
}

func (c *cast) propose(replica uint64, from, to int) {
	c.t.Helper()
	h := c.hosts[replica]
	for i := from; i < to; i++ {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		if _, err := h.SyncPropose(ctx, h.GetNoOPSession(1), fmt.Appendf(nil, "k%d", i)); err != nil {
			c.t.Fatalf("propose %d on %d: %v", i, replica, err)
		}
		cancel()
	}
}

// count reads linearizably on replica how many entries it has seen. Attempts are short: one that the leader drops is never
// answered.
func (c *cast) count(replica uint64) int {
	c.t.Helper()
	for begun := time.Now(); ; {
		ctx, cancel := context.WithTimeout(c.t.Context(), 500*time.Millisecond)
		v, err := c.hosts[replica].SyncRead(ctx, 1, nil)
		cancel()
		if err == nil {
			return v.(int)
		}
		if time.Since(begun) > 10*time.Second {
			c.t.Fatalf("read on %d: %v", replica, err)
		}
		time.Sleep(10 * time.Millisecond) // without a leader it is refused at once
	}
}

// Real NodeHosts elect, replicate, fail over when their leader is cut off, take it back, and bring a new replica up to date,
// which begins with a snapshot, over this transport and registry.
func TestNodeHosts(t *testing.T) {
	defer logbridge.Attach(hclog.NewNullLogger())() // else dragonboat prints
	synctest.Test(t, func(t *testing.T) {
		c := &cast{t: t, net: memnet.New(memnet.Options{}), addrs: map[string]string{}, hosts: map[uint64]*dragonboat.NodeHost{}, facts: map[uint64]*raftnet.Factory{}}
		members := map[uint64]string{1: uuidOf(1), 2: uuidOf(2), 3: uuidOf(3)}
		for r := range members {
			c.start(r, fmt.Sprintf("n%d:1", r), members)
		}
		old := c.leader(c.hosts, 0)
		c.propose(old, 0, 120)

		c.net.Isolate(fmt.Sprintf("n%d:1", old))
		rest := maps.Clone(c.hosts)
		delete(rest, old)
		cut := time.Now()
		next := c.leader(rest, old)
		if took := time.Since(cut); took > 5*time.Second {
			t.Errorf("a new leader took %v", took)
		}
		c.propose(next, 120, 240)
		c.net.Rejoin(fmt.Sprintf("n%d:1", old))
		healed := time.Now()
		if got := c.count(old); got != 240 {
			t.Errorf("the former leader has %d entries, want 240", got)
		}
		t.Logf("failover %v after the cut, the former leader reads %v after the heal", healed.Sub(cut), time.Since(healed))

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.hosts[next].SyncRequestAddNonVoting(ctx, 1, 4, uuidOf(4), 0); err != nil {
			t.Fatal(err)
		}
		c.start(4, "n4:1", nil)
		if got := c.count(4); got != 240 {
			t.Errorf("the new replica has %d entries, want 240", got)
		}
		if s := c.facts[4].Stats(); s.TakenChunks == 0 || s.Malformed != 0 || s.HandlerPanics != 0 {
			t.Errorf("got %+v, want a snapshot taken and nothing malformed", s)
		}
		for r, f := range c.facts {
			if s := f.Stats(); s.Malformed != 0 || s.HandlerPanics != 0 {
				t.Errorf("replica %d: %+v", r, s)
			}
		}
	})
}
