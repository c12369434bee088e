package raftnet

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/oarlock/oarlock/transport"
)

// Config is what a Factory needs. All fields but Learn and Logger are required.
type Config struct {
	Transport transport.Transport
	Self      string // this node's UUID
	Cluster   string // the cluster's UUID; connections of any other are refused
	Format    uint32 // the cluster's format version, told to peers for their logs
	// Resolve gives the present address of a node, or false if it is unknown. It is called at each dial and twice a second for
	// each connection; it must not block.
	Resolve func(node string) (addr string, ok bool)
	// Learn, if set, is told from which node a replica's messages arrive, and dragonboat is not. It must not block. If it is
	// nil, dragonboat adds the replica to its registry itself.
	Learn  func(shard, replica uint64, node string)
	Logger hclog.Logger // nil: silent
}

// A Factory makes dragonboat's transport and accepts connections for it. It is safe for concurrent use. It outlives the
// NodeHost: what connects while there is none is closed.
type Factory struct {
	c     Config
	count counters
	lines lineLimit

	accepting sync.Once
	loops     sync.WaitGroup

	mu      sync.Mutex // guards current
	current *Net       // gets the connections; nil before Start and after Close
}

var _ config.TransportFactory = (*Factory)(nil)

// NewFactory returns a factory. It starts nothing; the Net that Create makes does, when dragonboat starts it.
func NewFactory(c Config) *Factory {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
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

// Wait returns when the goroutines that accept have ended, which they do once the Transport is closed: an Accept cannot be
// ended otherwise. Close of the Net waits for everything else.
func (f *Factory) Wait() { f.loops.Wait() }

// Stats returns the counters since the factory was made.
func (f *Factory) Stats() Stats { return f.count.stats() }

// attach makes n the one that gets connections, and starts to accept if nobody does yet.
func (f *Factory) attach(n *Net) {
	f.mu.Lock()
	f.current = n
	f.mu.Unlock()
	f.accepting.Do(func() {
		for _, p := range []transport.Proto{transport.Raft, transport.Snapshot} {
			f.loops.Go(func() { f.accept(p) }) // stops when the transport is closed; Wait waits for it
		}
	})
}

func (f *Factory) detach(n *Net) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == n {
		f.current = nil
	}
}

func (f *Factory) accept(p transport.Proto) {
	for {
		c, err := f.c.Transport.Accept(p)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.lines.warn(f.c.Logger, "cannot accept connections", "proto", p.String(), "err", err)
			time.Sleep(redialMin) // whatever it is, it must not become a busy loop
			continue
		}
		f.mu.Lock()
		n := f.current
		f.mu.Unlock()
		if n == nil || !n.serve(c, p) {
			c.Close()
		}
	}
}

// isUUID accepts the canonical form only: a UUID is compared as a string everywhere.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }
