// Package env is what the node takes from its surroundings: the clock, the network and the file systems. Production
// code gets System; nodetest puts memory and virtual time in its place, through the context given to node.Open.
package env

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/transport"
)

// A Clock tells the time since boot, running through suspend. It is safe for concurrent use.
type Clock interface {
	// Now is the strict reading. Granting, renewing, expiring and serving use it.
	Now() time.Duration
	// Fast may lag behind Now by a suspend until its offset is next refreshed, 50 ms. Only Check uses it.
	Fast() time.Duration
	// AfterFunc calls f once the clock has reached at. f must not block.
	AfterFunc(at time.Duration, f func()) Timer
	// Close stops the clock's timers.
	Close() error
}

// A Timer is a pending call of AfterFunc.
type Timer interface {
	// Stop prevents the call, and says whether it did.
	Stop() bool
}

// Env is one node's surroundings.
type Env struct {
	Clock  Clock
	FS     vfs.FS     // the node's state
	RaftFS raftvfs.FS // the Raft log; nil: the disk
	BootID string     // tells the machine's boots apart
	Listen func(bind, advertise string, log hclog.Logger) (transport.Transport, error)
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Wall is the date, which is recorded for people to read and decides nothing; nil: time.Now.
	Wall func() time.Time
	// MaxFormat is the newest cluster format version this binary speaks; 0: the newest it was built with. Tests of
	// mixed versions set it.
	MaxFormat uint32
	// SnapshotEntries is after how many entries of a shard its state is snapshotted and its log compacted; 0: 50,000. Tests of
	// replicas that come too late for the log make it small.
	SnapshotEntries uint64
	// Inspect, if set, is called by Open with a look into the node. Tests compare replicas with it.
	Inspect func(Inspector)
	// Raft, if set, stands between the node's ownerships and the Raft library. Tests hold and lose there what a slow machine
	// or network would.
	Raft RaftGate
}

// A RaftGate does what a node asks of Raft as the owner of a shard, or to become that: next does it without a gate. It is called
// by many goroutines.
type RaftGate interface {
	// Propose is a proposal of an entry.
	Propose(ctx context.Context, shard uint64, entry []byte, next func() error) error
	// Read is the linearizable read of a confirmation.
	Read(ctx context.Context, shard uint64, next func() error) error
}

// An Inspector looks into a node, for tests.
type Inspector interface {
	// State is the index of the last entry that the shard's replica here has applied, and a hash of its state. ok is false
	// where no replica runs. While entries are being applied the two may be of different instants.
	State(shard int) (applied, hash uint64, ok bool)
	// Leads says whether Raft publishes the shard's replica here as the leader, and the term.
	Leads(shard int) (leads bool, term uint64)
	// Transfer asks Raft to let the replica on another node lead, without a word to the owner.
	Transfer(shard int, node string) error
	// Propose proposes an entry through this node, as one that was forwarded and comes late.
	Propose(ctx context.Context, shard int, entry []byte) error
}

// Date is what Wall says.
func (e *Env) Date() time.Time {
	if e.Wall != nil {
		return e.Wall()
	}
	return time.Now()
}

type key struct{}

// With returns a context that makes node.Open use e.
func With(ctx context.Context, e *Env) context.Context { return context.WithValue(ctx, key{}, e) }

// From returns the surroundings that With put into ctx, or those of the real system.
func From(ctx context.Context) (*Env, error) {
	if e, ok := ctx.Value(key{}).(*Env); ok {
		return e, nil
	}
	return System()
}
