package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

const (
	maxPending  = 256  // accepted connections whose protocol is not known yet
	packetQueue = 1024 // datagrams that wait for the reader of Packets
	udpBuffer   = 2 << 20
)

// TCP is the Transport on sockets: one TCP port and the UDP port of the same number. Listen makes it; Close ends it and
// everything that it accepted or dialled. It is safe for concurrent use.
type TCP struct {
	config   Config
	log      hclog.Logger
	addr     string
	listener net.Listener
	udp      *net.UDPConn
	accepts  map[Proto]chan net.Conn
	packets  chan Packet
	pending  chan struct{} // a slot for each connection whose header is awaited
	refusals *refusals
	conns    connSet
	stats    counters
	ctx      context.Context // ends when Close begins
	cancel   context.CancelFunc
	wg       sync.WaitGroup // the loops, and one goroutine for each pending connection
	closed   chan struct{}  // closed when Close is done
	closing  atomic.Bool
}

var _ Transport = (*TCP)(nil)

// counters are the live form of Stats.
type counters struct{ refused, acceptErrors, dropped atomic.Uint64 }

// Listen opens the TCP listener and the UDP socket of c.Bind and starts to serve them. It returns ErrInvalid with all
// faults of c, or the system's error, wrapped, when the address cannot be had for both. It does not wait for peers. The
// caller closes what it gets.
func Listen(c Config) (*TCP, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	listener, udp, err := bind(c.Bind)
	if err != nil {
		return nil, fmt.Errorf("transport: listen at %s: %w", c.Bind, err)
	}
	t := newTCP(c, listener)
	t.udp = udp
	// Stops when the listener is closed; Close waits for it.
	t.wg.Go(t.acceptLoop)
	// Stops when the UDP socket is closed; Close waits for it.
	t.wg.Go(t.packetLoop)
	return t, nil
}

func newTCP(c Config, listener net.Listener) *TCP {
	t := &TCP{
		config:   c,
		log:      c.Logger,
		addr:     c.address(listener.Addr()),
		listener: listener,
		accepts:  make(map[Proto]chan net.Conn),
		packets:  make(chan Packet, packetQueue),
		pending:  make(chan struct{}, maxPending),
		refusals: newRefusals(),
		conns:    connSet{open: make(map[*conn]struct{})},
		closed:   make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, p := range Protos() {
		t.accepts[p] = make(chan net.Conn, Backlog)
	}
	return t
}

// Addr is the address that peers reach this transport at: Config.Advertise, or else the bound address, with the real
// port in place of port 0.
func (t *TCP) Addr() string { return t.addr }

// Stats returns the transport's counters. It does not block, and works after Close too.
func (t *TCP) Stats() Stats {
	return Stats{
		Refused:        t.stats.refused.Load(),
		AcceptErrors:   t.stats.acceptErrors.Load(),
		DroppedPackets: t.stats.dropped.Load(),
	}
}

// Accept waits for the next connection of protocol p, whose header has been read and checked. Close ends the wait with
// net.ErrClosed, which is the only error for a known protocol; connections nobody accepts are closed beyond Backlog.
func (t *TCP) Accept(p Proto) (net.Conn, error) {
	return t.AcceptContext(context.Background(), p)
}

// AcceptContext is Accept until ctx ends; then it returns an error that wraps ctx's, and no connection is lost.
func (t *TCP) AcceptContext(ctx context.Context, p Proto) (net.Conn, error) {
	queue, known := t.accepts[p]
	if !known {
		return nil, fmt.Errorf("%w: accept %d", errProto, p)
	}
	if t.ctx.Err() != nil {
		return nil, t.errClosed("accept")
	}
	select {
	case <-t.ctx.Done():
		return nil, t.errClosed("accept")
	case <-ctx.Done():
		return nil, fmt.Errorf("transport: accept at %s: %w", t.addr, ctx.Err())
	case c := <-queue:
		return c, nil
	}
}

// Close closes the listener, the UDP socket and every connection accepted or dialled through t, ends all calls with
// net.ErrClosed, and waits for the goroutines. The address is free when it returns. It is idempotent: every call
// returns only when all is closed.
func (t *TCP) Close() error {
	if t.closing.Swap(true) {
		<-t.closed
		return nil
	}
	defer close(t.closed)
	t.cancel()
	err := t.listener.Close()
	if t.udp != nil {
		err = errors.Join(err, t.udp.Close())
	}
	t.conns.closeAll()
	t.wg.Wait()
	close(t.packets)
	return err
}

func (t *TCP) errClosed(op string) error {
	return fmt.Errorf("transport: %s at %s: %w", op, t.addr, net.ErrClosed)
}
