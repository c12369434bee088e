package raft

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	sm "github.com/lni/dragonboat/v4/statemachine"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/raftnet"
	"github.com/oarlock/oarlock/node/internal/registry"
	"github.com/oarlock/oarlock/transport"
)

// Config is what a Host needs.
type Config struct {
	Dir             string     // of the Raft log
	FS              raftvfs.FS // nil: the disk
	Node            string     // this node's UUID
	Cluster         string     // the cluster's UUID
	Format          uint32     // the cluster's format version
	Boot            raftnet.Boot
	ElectionTimeout time.Duration
	Transport       transport.Transport
	Resolve         func(node string) (addr string, ok bool)
	// Admit and Refused: see raftnet.Config.
	Admit   func(node string, b raftnet.Boot) bool
	Refused func(peer string)
	Machine func(shard, replica uint64) sm.IOnDiskStateMachine
	// Leader is called when what is published of a shard's leader changes. It is a hint; it must not block.
	Leader func(shard uint64)
	Logger hclog.Logger
	// SnapshotEntries is after how many entries a shard's state is snapshotted; 0: 50,000. A tenth of it is kept of the log.
	SnapshotEntries uint64
}

// A Host runs Raft replicas. It is safe for concurrent use.
type Host struct {
	c    Config
	tick time.Duration
	nh   *dragonboat.NodeHost
	net  *raftnet.Factory

	mu       sync.RWMutex // held shared around each call into dragonboat, exclusively to close; guards the fields below
	closed   bool
	replicas map[uint64]*started // by shard
}

type started struct {
	replica uint64
	session *client.Session
	voters  int
}

// Tick is the Raft clock's tick for an election timeout.
func Tick(election time.Duration) time.Duration {
	return max(min(50*time.Millisecond, election/20), time.Millisecond).Truncate(time.Millisecond)
}

// Open starts the host without replicas. It panics never: what dragonboat panics with becomes the error.
func Open(c Config) (h *Host, err error) {
	h = &Host{c: c, tick: Tick(c.ElectionTimeout), replicas: map[uint64]*started{}}
	nc := config.NodeHostConfig{
		NodeHostDir:         c.Dir,
		RTTMillisecond:      uint64(h.tick / time.Millisecond),
		RaftAddress:         c.Node,
		NodeHostID:          c.Node,
		DeploymentID:        deployment(c.Cluster),
		RaftEventListener:   listener{c.Leader},
		MaxSendQueueSize:    64 << 20,
		MaxReceiveQueueSize: 64 << 20,
	}
	if c.FS != nil {
		nc.Expert.FS = c.FS
	}
	nc.Expert.Engine = config.EngineConfig{ExecShards: 4, CommitShards: 4, ApplyShards: 4, SnapshotShards: 4, CloseShards: 4}
	nc.Expert.LogDB = logStore()
	nodes := registry.NewFactory()
	nodes.Logger = c.Logger
	h.net = raftnet.NewFactory(raftnet.Config{
		Transport: c.Transport,
		Self:      c.Node,
		Cluster:   c.Cluster,
		Boot:      c.Boot,
		Format:    c.Format,
		Admit:     c.Admit,
		Refused:   c.Refused,
		Resolve:   c.Resolve,
		Learn:     nodes.Learn,
		Logger:    c.Logger,
	})
	nc.Expert.NodeRegistryFactory, nc.Expert.TransportFactory = nodes, h.net
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("open raft log in %s: %v", c.Dir, p)
		}
	}()
	if err := prepareDir(c); err != nil {
		return nil, err
	}
	if h.nh, err = dragonboat.NewNodeHost(nc); err != nil {
		if foreignLog(err) {
			err = fmt.Errorf("%w: %w", ErrForeignLog, err)
		}
		return nil, fmt.Errorf("open raft log in %s: %w", c.Dir, err)
	}
	if h.nh == nil { // it swallows panics of its own that are no errors
		return nil, fmt.Errorf("open raft log in %s: %w", c.Dir, ErrOpenFailed)
	}
	return h, nil
}

// foreignLog says whether dragonboat refused a directory for whose it is. Its errors for that cannot be named from here.
func foreignLog(err error) bool {
	for _, text := range []string{"NodeHostID changed", "deployment ID changed"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// prepareDir makes the directory of a machine that was renamed fit.
func prepareDir(c Config) error {
	fs := c.FS
	if fs == nil {
		fs = raftvfs.Default
	}
	dir, err := filepath.Abs(c.Dir) // as dragonboat does
	if err != nil {
		return fmt.Errorf("find %s: %w", c.Dir, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the machine's name: %w", err)
	}
	return adoptHostname(fs, dir, host)
}

// logStore configures the log store that comes with dragonboat.
func logStore() config.LogDBConfig {
	c := config.GetTinyMemLogDBConfig()
	c.Shards = 1
	c.KVWriteBufferSize = 16 << 20
	return c
}

func deployment(cluster string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(cluster))
	return max(f.Sum64(), 2) // 0 and 1 have meanings of their own
}

type listener struct{ leader func(shard uint64) }

// LeaderUpdated is called by dragonboat from one goroutine.
func (l listener) LeaderUpdated(i raftio.LeaderInfo) { l.leader(i.ShardID) }

// Start starts the replica. members are the group's first members by replica id, as its founding plan has them. known says that
// this replica ran here before; if so its log must be there.
func (h *Host) Start(shard, replica uint64, members map[uint64]string, known bool) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	voters := len(members)
	if h.nh.HasNodeInfo(shard, replica) {
		members = nil
	} else if known {
		return fmt.Errorf("shard %d replica %d: %w", shard, replica, ErrDataMissing)
	}
	election := max(h.c.ElectionTimeout/h.tick, 10)
	every := h.c.SnapshotEntries
	if every == 0 {
		every = 50_000
	}
	rc := config.Config{
		ReplicaID:           replica,
		ShardID:             shard,
		CheckQuorum:         true,
		PreVote:             true,
		OrderedConfigChange: true,
		ElectionRTT:         uint64(election),
		HeartbeatRTT:        max(uint64(election/10), 1),
		SnapshotEntries:     every,
		CompactionOverhead:  every / 10,
		MaxInMemLogSize:     64 << 20,
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start shard %d: %v", shard, p)
		}
	}()
	if err := h.nh.StartOnDiskReplica(members, false, h.c.Machine, rc); err != nil {
		return fmt.Errorf("start shard %d: %w", shard, err)
	}
	h.replicas[shard] = &started{replica: replica, session: h.nh.GetNoOPSession(shard), voters: voters}
	return nil
}

// Stop stops the shard's replica here; its data stays. It does not wait until the replica is unloaded.
func (h *Host) Stop(shard uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.replicas[shard]
	if !ok || h.closed {
		return nil
	}
	delete(h.replicas, shard)
	if err := h.nh.StopReplica(shard, s.replica); err != nil {
		return fmt.Errorf("stop shard %d: %w", shard, err)
	}
	return nil
}

// Leader is the replica that is published as leader of the shard, 0 if none, and the term.
func (h *Host) Leader(shard uint64) (replica, term uint64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return 0, 0
	}
	id, term, ok, err := h.nh.GetLeaderID(shard)
	if err != nil || !ok {
		return 0, term
	}
	return id, term
}

// View is what Raft publishes of the shard now.
func (h *Host) View(shard uint64) owner.View {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.replicas[shard]
	if h.closed || s == nil {
		return owner.View{}
	}
	id, term, ok, err := h.nh.GetLeaderID(shard)
	v := owner.View{Self: err == nil && ok && id == s.replica, Term: term}
	if v.Self && s.voters >= manyVoters {
		v.Change = h.changeLocked(shard)
	}
	return v
}

// manyVoters is the size from which on dragonboat may count the acknowledgement of a removed voter.
const manyVoters = 5

// changeLocked is the group's config-change id. Asking for it looks at all shards, so small groups go without.
func (h *Host) changeLocked(shard uint64) uint64 {
	for _, i := range h.nh.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true}).ShardInfoList {
		if i.ShardID == shard {
			return i.ConfigChangeIndex
		}
	}
	return 0
}

// Read completes once everything that was committed in the group before the call has been applied here. It proves nothing about who
// leads: a follower's read is forwarded. It returns nil, ErrNotAppended or an error of ctx.
func (h *Host) Read(ctx context.Context, shard uint64, timeout time.Duration) error {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return ErrClosed
	}
	rs, err := h.nh.ReadIndex(shard, max(timeout, 2*h.tick))
	h.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotAppended, err)
	}
	select {
	case res := <-rs.ResultC():
		rs.Release()
		if !res.Completed() {
			return fmt.Errorf("read: %w", ErrNotAppended)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Propose appends cmd to the shard's log and waits until it was applied here. A nil error says just that: what came of the command
// is told to the replica's observer. ErrNotAppended says that it was not and will not be applied. Any other error leaves
// it open: the entry may be applied even later.
func (h *Host) Propose(ctx context.Context, shard uint64, cmd []byte, timeout time.Duration) error {
	h.mu.RLock()
	s := h.replicas[shard]
	if h.closed || s == nil {
		h.mu.RUnlock()
		return fmt.Errorf("%w: %w", ErrNotAppended, ErrClosed)
	}
	rs, err := h.nh.Propose(s.session, cmd, max(timeout, 2*h.tick))
	h.mu.RUnlock()
	if err != nil {
		if errors.Is(err, dragonboat.ErrShardNotReady) || errors.Is(err, dragonboat.ErrSystemBusy) ||
			errors.Is(err, dragonboat.ErrShardNotFound) || errors.Is(err, dragonboat.ErrPayloadTooBig) {
			return fmt.Errorf("%w: %w", ErrNotAppended, err)
		}
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	select {
	case res := <-rs.AppliedC():
		rs.Release()
		switch {
		case res.Completed():
			return nil
		case res.Dropped():
			return ErrNotAppended
		default:
			return ErrOutcomeUnknown
		}
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// Transfer asks for replica to become the shard's leader. It may come to nothing.
func (h *Host) Transfer(shard, replica uint64) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return ErrClosed
	}
	if err := h.nh.RequestLeaderTransfer(shard, replica); err != nil {
		return fmt.Errorf("transfer leadership of shard %d to replica %d: %w", shard, replica, err)
	}
	return nil
}

// Close stops all replicas and the host. Requests under way end with ErrOutcomeUnknown. It is idempotent.
func (h *Host) Close() (err error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close raft host: %v", p)
		}
	}()
	h.nh.Close()
	return nil
}

// Wait returns when the goroutines that accept connections have ended: call it after the host and its transport were closed.
func (h *Host) Wait() { h.net.Wait() }
