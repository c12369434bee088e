package raftnet

import (
	"net"
	"strconv"
	"sync"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/oarlock/oarlock/transport"
)

// Config is what a Factory needs. All fields but Boot, Admit, Refused, Learn and Logger are required.
type Config struct {
	Transport transport.Transport
	Self      string // this node's UUID
	Boot      Boot   // this process of it
	Cluster   string // the cluster's UUID; connections of any other are refused
	Format    uint32 // the cluster's format version, told to peers for their logs
	// Resolve gives the present address of a node, or false if it is unknown. It is called at each dial and twice a second for
	// each connection; it must not block.
	Resolve func(node string) (addr string, ok bool)
	// Learn, if set, is told from which node a replica's messages arrive, and dragonboat is not. It must not block. If it is
	// nil, dragonboat adds the replica to its registry itself.
	Learn func(shard, replica uint64, node string)
	// Admit, if set, says whether a process may speak for a node, see membership.Membership.Admit. It is asked at each hello and for
	// each batch and chunk; it must not block.
	Admit func(node string, b Boot) bool
	// Refused, if set, is told that the node peer knows another process of this node: this one runs in a copied directory and
	// must stop. It must not block.
	Refused func(peer string)
	Logger  hclog.Logger // nil: silent
}

// A Factory makes dragonboat's transport. It is safe for concurrent use.
type Factory struct {
	c     Config
	count counters
	lines lineLimit
	loops sync.WaitGroup // goroutines that accept
}

var _ config.TransportFactory = (*Factory)(nil)

// NewFactory returns a factory. It starts nothing; the Net that Create makes does, when dragonboat starts it.
func NewFactory(c Config) *Factory {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Admit == nil {
		c.Admit = func(string, Boot) bool { return true }
	}
	if c.Refused == nil {
		c.Refused = func(string) {}
	}
	return &Factory{c: c}
}

// Create is called by dragonboat while its NodeHost starts.
func (f *Factory) Create(_ config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	return newNet(f, messages, chunks)
}

// Validate accepts what may stand as a NodeHost's address: a node's UUID, or host:port.
func (f *Factory) Validate(addr string) bool {
	if isUUID(addr) {
		return true
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// Wait returns when nothing that the factory made accepts connections any more. Close of a Net waits for its own part, so Wait
// matters only where a NodeHost was given up without it; then the transport must be closed first.
func (f *Factory) Wait() { f.loops.Wait() }

// Stats returns the counters since the factory was made.
func (f *Factory) Stats() Stats { return f.count.stats() }

// isUUID accepts the canonical form only: a UUID is compared as a string everywhere.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }
