package memnet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// packetQueue is how many packets wait for the reader of one endpoint; as many wait for all that are held.
const packetQueue = 1024

// An Endpoint is one process's transport on a Network. It implements transport.Transport with the same semantics as the
// one on sockets, and is safe for concurrent use.
type Endpoint struct {
	n       *Network
	addr    string
	done    chan struct{}
	accepts map[transport.Proto]chan net.Conn
	packets chan transport.Packet
	conns   map[*conn]struct{} // guarded by the network's lock
	closed  bool               // guarded by the network's lock
	refused atomic.Uint64
	dropped atomic.Uint64
}

var _ transport.Transport = (*Endpoint)(nil)

func newEndpoint(n *Network, addr string) *Endpoint {
	e := &Endpoint{
		n:       n,
		addr:    addr,
		done:    make(chan struct{}),
		accepts: make(map[transport.Proto]chan net.Conn),
		packets: make(chan transport.Packet, packetQueue),
		conns:   make(map[*conn]struct{}),
	}
	for _, p := range transport.Protos() {
		e.accepts[p] = make(chan net.Conn, transport.Backlog)
	}
	return e
}

// Addr is the address the endpoint listens at, with the real port after port 0.
func (e *Endpoint) Addr() string { return e.addr }

// Stats returns the endpoint's counters. It does not block.
func (e *Endpoint) Stats() transport.Stats {
	return transport.Stats{Refused: e.refused.Load(), DroppedPackets: e.dropped.Load()}
}

// Accept waits for the next connection of protocol p, or for Close, then it returns net.ErrClosed.
func (e *Endpoint) Accept(p transport.Proto) (net.Conn, error) {
	return e.AcceptContext(context.Background(), p)
}

// AcceptContext is Accept until ctx ends; then it returns an error that wraps ctx's, and no connection is lost.
func (e *Endpoint) AcceptContext(ctx context.Context, p transport.Proto) (net.Conn, error) {
	queue, known := e.accepts[p]
	if !known {
		return nil, fmt.Errorf("memnet: accept: unknown protocol %d", p)
	}
	select {
	case <-e.done:
		return nil, e.wrap("accept", e.addr, net.ErrClosed)
	default:
	}
	select {
	case <-e.done:
		return nil, e.wrap("accept", e.addr, net.ErrClosed)
	case <-ctx.Done():
		return nil, e.wrap("accept", e.addr, ctx.Err())
	case c := <-queue:
		return c, nil
	}
}

// Dial opens a connection of protocol p to addr. It takes a round trip of the path's delay, waits while either direction
// swallows what it is given, until ctx ends, and is refused at once where nobody listens or a partition stands.
func (e *Endpoint) Dial(ctx context.Context, p transport.Proto, addr string) (net.Conn, error) {
	n, to := e.n, path{e.addr, addr}
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dialers.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for travelled := false; ; {
		switch {
		case e.closed:
			return nil, e.wrap("dial", addr, net.ErrClosed)
		case ctx.Err() != nil:
			return nil, e.wrap("dial", addr, ctx.Err())
		case n.refusedLocked(to) || n.refusedLocked(to.back()):
			return nil, e.wrap("dial", addr, syscall.ECONNREFUSED)
		case !n.openLocked(to) || !n.openLocked(to.back()):
			n.dialers.Wait()
			continue
		}
		if trip := e.tripLocked(to); !travelled && trip > 0 {
			travelled = true
			n.mu.Unlock()
			e.pause(ctx, trip)
			n.mu.Lock()
			continue
		}
		return e.connectLocked(p, addr)
	}
}

// tripLocked draws how long a handshake takes.
func (e *Endpoint) tripLocked(to path) time.Duration {
	n := e.n
	return n.delayLocked(to) + n.retransmitLocked(to) + n.delayLocked(to.back()) + n.retransmitLocked(to.back())
}

func (e *Endpoint) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-e.done:
	}
}

func (e *Endpoint) connectLocked(p transport.Proto, addr string) (net.Conn, error) {
	peer := e.n.endpoints[addr]
	if peer == nil {
		return nil, e.wrap("dial", addr, syscall.ECONNREFUSED)
	}
	mine, theirs := connectLocked(e, peer)
	select {
	case peer.accepts[p] <- theirs: // an unknown protocol has no queue and is never ready
	default:
		peer.refused.Add(1)
		theirs.closeLocked()
	}
	return mine, nil
}

// Packets delivers the datagrams that arrive. It is closed by Close. A slow reader loses packets.
func (e *Endpoint) Packets() <-chan transport.Packet { return e.packets }

// WriteTo sends one datagram, and copies b. No error does not mean that it arrives.
func (e *Endpoint) WriteTo(b []byte, addr string) error {
	if len(b) > transport.MaxPacket {
		return e.wrap("write", addr, syscall.EMSGSIZE)
	}
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if e.closed {
		return e.wrap("write", addr, net.ErrClosed)
	}
	e.n.routeLocked(&datagram{path: path{e.addr, addr}, data: bytes.Clone(b)})
	return nil
}

// Close closes the endpoint, everything accepted or dialled through it, and its packets, and frees the address at once.
// It is idempotent and does not block.
func (e *Endpoint) Close() error {
	n := e.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	close(e.done)
	close(e.packets)
	delete(n.endpoints, e.addr)
	for c := range e.conns {
		c.closeLocked()
	}
	n.dialers.Broadcast()
	return nil
}

func (e *Endpoint) wrap(op, addr string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Source: address(e.addr), Addr: address(addr), Err: err}
}

// A datagram is one packet on its way.
type datagram struct {
	path path
	data []byte
}

// routeLocked sends d on its way: it is parked while an end is held, lost, or delivered after the path's delay.
func (n *Network) routeLocked(d *datagram) {
	if n.heldLocked(d.path) {
		if len(n.parked) < packetQueue {
			n.parked = append(n.parked, d)
		}
		return
	}
	if !n.openLocked(d.path) || n.lostLocked(d.path) {
		return
	}
	wait := n.delayLocked(d.path)
	if wait <= 0 {
		n.deliverLocked(d)
		return
	}
	// Stops when it has delivered or dropped the packet; nobody needs to wait for it, since it only takes the lock
	// and finds closed endpoints gone.
	time.AfterFunc(wait, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.arriveLocked(d)
	})
}

// arriveLocked is the end of the delay: the path may have changed meanwhile.
func (n *Network) arriveLocked(d *datagram) {
	if n.heldLocked(d.path) {
		if len(n.parked) < packetQueue {
			n.parked = append(n.parked, d)
		}
	} else if n.openLocked(d.path) {
		n.deliverLocked(d)
	}
}

func (n *Network) deliverLocked(d *datagram) {
	e := n.endpoints[d.path.to]
	if e == nil {
		return
	}
	select {
	case e.packets <- transport.Packet{Data: d.data, From: d.path.from, At: time.Now()}:
	default:
		e.dropped.Add(1)
	}
}
