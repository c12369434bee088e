package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/oarlock/oarlock/transport"
)

// Bounds of the wire. A full exchange of maxMembers members takes about 3 MiB.
const (
	maxStreams     = 32 // accepted at one time
	maxStreamBytes = 8 << 20
	acceptPause    = 100 * time.Millisecond
	stopTimeout    = time.Second
)

// unresolved is the address that stands for "look the id up", where memberlist wants one.
const unresolved = "[::]:0"

var errNoAddress = errors.New("no address known")
var errTooLong = errors.New("stream too long")

// A wire is memberlist's transport over ours. Addresses with port 0 are resolved by the id that comes with them.
type wire struct {
	t       transport.Transport
	id      [16]byte
	resolve func(id string) (string, bool)
	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with stop
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	ended   chan struct{} // closed when the goroutine that accepts has ended

	// mu guards the below.
	mu       sync.Mutex
	stopped  bool
	open     map[*stream]struct{}
	accepted int
}

var _ memberlist.NodeAwareTransport = (*wire)(nil)

// newWire starts to read from t. Stop ends it; t stays open.
func newWire(t transport.Transport, id string, resolve func(id string) (string, bool)) *wire {
	w := &wire{
		t:       t,
		resolve: resolve,
		packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn),
		ended:   make(chan struct{}),
		open:    make(map[*stream]struct{}),
	}
	w.id, _ = parseUUID(id) // checked
	w.ctx, w.cancel = context.WithCancel(context.Background())
	// Stops when the wire or the transport is closed; stop waits for it.
	w.wg.Go(w.pump)
	// Stops when the wire or the transport is closed; stop waits for it.
	go w.accept()
	return w
}

// FinalAdvertiseAddr returns an address of the private range that is made of the node's id.
func (w *wire) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	ip := net.IP(append([]byte{0xfd}, w.id[1:]...))
	return ip, 0, nil
}

// pump hands packets on.
func (w *wire) pump() {
	for {
		select {
		case p, ok := <-w.t.Packets():
			if !ok {
				return
			}
			select {
			case w.packets <- &memberlist.Packet{Buf: p.Data, From: wireAddr(p.From), Timestamp: p.At}:
			case <-w.ctx.Done():
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// accept hands streams on, a bounded number at one time.
func (w *wire) accept() {
	defer close(w.ended)
	for {
		c, err := transport.AcceptContext(w.ctx, w.t, transport.Gossip)
		if errors.Is(err, net.ErrClosed) || err != nil && w.ctx.Err() != nil {
			return
		}
		if err != nil {
			w.pause()
			continue
		}
		s, err := w.track(c, true)
		if err != nil {
			continue
		}
		select {
		case w.streams <- s:
		case <-w.ctx.Done():
			_ = s.Close()
		}
	}
}

func (w *wire) pause() {
	t := time.NewTimer(acceptPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// PacketCh delivers the packets that arrive.
func (w *wire) PacketCh() <-chan *memberlist.Packet { return w.packets }

// StreamCh delivers the connections that were accepted.
func (w *wire) StreamCh() <-chan net.Conn { return w.streams }

// WriteTo sends a packet; see WriteToAddress.
func (w *wire) WriteTo(b []byte, addr string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet. It never fails: memberlist would take an error of the local side for a reason not to
// suspect a member, and then a member behind a broken route would look alive for ever.
func (w *wire) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if addr, err := w.address(a); err == nil && w.ctx.Err() == nil {
		_ = w.t.WriteTo(b, addr)
	}
	return time.Now(), nil
}

// DialTimeout opens a stream; see DialAddressTimeout.
func (w *wire) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream to a member, or to the address that a join passes in place of an id.
func (w *wire) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	addr, err := w.address(a)
	if err != nil {
		if checkAddr(a.Name) != nil {
			return nil, err
		}
		addr = a.Name
	}
	ctx, cancel := context.WithTimeout(w.ctx, timeout)
	defer cancel()
	c, err := w.t.Dial(ctx, transport.Gossip, addr)
	if err != nil {
		return nil, err
	}
	return w.track(c, false)
}

func (w *wire) address(a memberlist.Address) (string, error) {
	if _, port, err := net.SplitHostPort(a.Addr); err == nil && port != "0" {
		return a.Addr, nil
	}
	if addr, ok := w.resolve(a.Name); ok {
		return addr, nil
	}
	return "", fmt.Errorf("%w of %.64q", errNoAddress, a.Name)
}

// track takes c into the open streams, or closes it if there are too many or the wire was stopped.
func (w *wire) track(c net.Conn, accepted bool) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || accepted && w.accepted >= maxStreams {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	s := &stream{Conn: c, wire: w, accepted: accepted, left: maxStreamBytes}
	w.open[s] = struct{}{}
	if accepted {
		w.accepted++
	}
	return s, nil
}

func (w *wire) untrack(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.open[s]; ok && s.accepted {
		w.accepted--
	}
	delete(w.open, s)
}

// Shutdown is memberlist's name for stop.
func (w *wire) Shutdown() error {
	w.stop()
	return nil
}

// stop closes the wire's streams, not the transport, and waits for its goroutines. Only if the transport knows no way to
// give up accepting, the goroutine that accepts lives on until the transport is closed.
func (w *wire) stop() {
	w.mu.Lock()
	again := w.stopped
	w.stopped = true
	open := w.open
	w.open = make(map[*stream]struct{})
	w.mu.Unlock()
	if again {
		return
	}
	w.cancel()
	for s := range open {
		_ = s.Conn.Close()
	}
	w.wg.Wait()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-w.ended:
	case <-t.C:
	}
}

// A stream is a connection whose reader gets a bounded number of bytes.
type stream struct {
	net.Conn
	wire     *wire
	accepted bool
	left     int // for the one goroutine that reads
}

// Read fails once the stream's bytes are used up.
func (s *stream) Read(b []byte) (int, error) {
	if s.left <= 0 {
		return 0, errTooLong
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

// Close closes the connection.
func (s *stream) Close() error {
	s.wire.untrack(s)
	return s.Conn.Close()
}

// A wireAddr is host:port.
type wireAddr string

// Network names the transport for logs.
func (wireAddr) Network() string { return "oarlock" }

// String is host:port.
func (a wireAddr) String() string { return string(a) }
