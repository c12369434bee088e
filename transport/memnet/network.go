package memnet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// firstPort is where the search for a free port begins when an address asks for port 0.
const firstPort = 40000

// Options sets up a Network. The zero value is a network without delay or loss.
type Options struct {
	// Seed seeds the random numbers behind jitter and loss. The order in which goroutines draw them is the
	// scheduler's, so one seed gives one distribution, not one exact run.
	Seed uint64
	// Delay and Jitter apply to every path that has none of its own: each write takes Delay plus a random part of
	// Jitter. Zero means at once.
	Delay, Jitter time.Duration
}

// A Network joins endpoints in one process and injects faults between them. All its methods are safe for concurrent use
// and return at once. It needs no closing: closing its endpoints leaves nothing behind.
type Network struct {
	// mu guards everything of the network, its endpoints and its streams, so that a fault takes effect at one
	// instant everywhere.
	mu        sync.Mutex
	rng       *rand.Rand
	opts      Options
	endpoints map[string]*Endpoint
	paths     map[path]rule
	isolated  map[string]bool
	held      map[string]bool
	streams   map[*stream]struct{} // one for each direction of each open connection
	dialers   *sync.Cond           // dials that wait for a path to open
	parked    []*datagram          // packets that wait for Resume
	port      int                  // the next candidate for port 0, and for the dialler's side of connections
}

// New makes a network. Called inside a bubble it belongs to that bubble.
func New(o Options) *Network {
	n := &Network{
		rng:       rand.New(rand.NewPCG(o.Seed, 0x6d656d6e6574)),
		opts:      o,
		endpoints: make(map[string]*Endpoint),
		paths:     make(map[path]rule),
		isolated:  make(map[string]bool),
		held:      make(map[string]bool),
		streams:   make(map[*stream]struct{}),
		port:      firstPort,
	}
	n.dialers = sync.NewCond(&n.mu)
	return n
}

// Listen opens an endpoint at addr, host:port. Port 0 picks a free one and an empty host means 127.0.0.1. An address in
// use is an error that wraps syscall.EADDRINUSE; after the endpoint's Close the address is free at once. It does not
// block.
func (n *Network) Listen(addr string) (*Endpoint, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("memnet: listen at %q: %w", addr, err)
	}
	num, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("memnet: listen at %q: port: %w", addr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	full := net.JoinHostPort(host, strconv.Itoa(int(num)))
	if num == 0 {
		full = n.freeLocked(host)
	}
	if n.endpoints[full] != nil {
		return nil, fmt.Errorf("memnet: listen at %s: %w", full, syscall.EADDRINUSE)
	}
	e := newEndpoint(n, full)
	n.endpoints[full] = e
	return e, nil
}

// freeLocked is an address of host that nobody listens at. There are more ports than a test has endpoints.
func (n *Network) freeLocked(host string) string {
	for {
		addr := net.JoinHostPort(host, strconv.Itoa(n.port))
		n.port++
		if n.port > 65535 {
			n.port = firstPort
		}
		if n.endpoints[addr] == nil {
			return addr
		}
	}
}

// delayLocked draws how long one write from one address to another is on its way, retransmits after losses included.
func (n *Network) delayLocked(p path) time.Duration {
	d, jitter := n.opts.Delay, n.opts.Jitter
	r := n.paths[p]
	if r.slow {
		d, jitter = r.delay, r.jitter
	}
	if p.from == p.to {
		return 0
	}
	if jitter > 0 {
		d += time.Duration(n.rng.Int64N(int64(jitter)))
	}
	return d
}

// retransmitLocked is how much later bytes of a stream come because earlier copies of them were lost.
func (n *Network) retransmitLocked(p path) time.Duration {
	var late time.Duration
	for rto := minRTO; late < maxRTO && n.lostLocked(p); rto *= 2 {
		late += rto
	}
	return late
}

// lostLocked draws whether one packet on path p is lost.
func (n *Network) lostLocked(p path) bool {
	loss := n.paths[p].loss
	return loss > 0 && p.from != p.to && n.rng.Float64() < loss
}

// What a lost segment of a stream costs: the first retransmission after minRTO, then doubling up to maxRTO in all.
const (
	minRTO = 200 * time.Millisecond
	maxRTO = 10 * time.Second
)

// settleLocked moves what has arrived by now to the receivers of all streams. It runs before the paths change, so that
// a new cut does not take back what was there already.
func (n *Network) settleLocked() {
	now := time.Now()
	for s := range n.streams {
		s.settleLocked(now)
	}
}

// wakeLocked makes everybody who waits for anything look again.
func (n *Network) wakeLocked() {
	for s := range n.streams {
		s.cond.Broadcast()
	}
	n.dialers.Broadcast()
}

// Stats returns the packets that each open endpoint has dropped because its reader was too slow, by address.
func (n *Network) Stats() map[string]transport.Stats {
	n.mu.Lock()
	eps := maps.Clone(n.endpoints)
	n.mu.Unlock()
	out := make(map[string]transport.Stats, len(eps))
	for addr, e := range eps {
		out[addr] = e.Stats()
	}
	return out
}
