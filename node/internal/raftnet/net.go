package raftnet

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"

	"github.com/oarlock/oarlock/transport"
)

// ErrClosed says that the transport is closed.
var ErrClosed = errors.New("raftnet: closed")

// The times of the protocol. They are far below an election timeout where they decide how soon messages flow again.
const (
	helloTimeout = 5 * time.Second         // for a peer that connected to introduce itself
	dialTimeout  = 1500 * time.Millisecond // to connect and be welcomed
	firstDial    = 250 * time.Millisecond  // how long GetConnection waits for the first dial, so that its messages are not lost
	redialMin    = 20 * time.Millisecond
	redialMax    = 500 * time.Millisecond
	stallLimit   = time.Second            // a message write without progress
	watchEvery   = 500 * time.Millisecond // looks at the peer's address and silence
	pingEvery    = time.Second
	silenceLimit = 3 * time.Second  // no pong: the peer is gone
	idleLimit    = 10 * time.Second // no frame at the receiver: the sender is gone, as it pings every second
	chunkStall   = 30 * time.Second // a chunk write without progress: the receiver's disk may be slow
	ackTimeout   = 2 * time.Minute  // for a chunk to be taken; the last one is checked and synced first
	chunkIdle    = 15 * time.Minute // between chunks: a snapshot in the making may pause
)

// A Net is dragonboat's transport between Start and Close. It is safe for concurrent use.
type Net struct {
	f        *Factory
	messages raftio.MessageHandler
	chunks   raftio.ChunkHandler
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // every goroutine of ours; Add only under mu and before closed

	mu      sync.Mutex // guards the fields below
	started bool
	closed  bool
	open    map[net.Conn]struct{} // both ways; Close closes them
}

var _ raftio.ITransport = (*Net)(nil)

func newNet(f *Factory, messages raftio.MessageHandler, chunks raftio.ChunkHandler) *Net {
	ctx, cancel := context.WithCancel(context.Background())
	return &Net{f: f, messages: messages, chunks: chunks, ctx: ctx, cancel: cancel, open: map[net.Conn]struct{}{}}
}

// Name names the transport in dragonboat's log.
func (n *Net) Name() string { return "oarlock" }

// Start begins to accept connections. It is idempotent, and returns ErrClosed after Close.
func (n *Net) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	if n.started {
		return nil
	}
	n.started = true
	for _, p := range []transport.Proto{transport.Raft, transport.Snapshot} {
		n.f.loops.Add(1)
		n.running.Go(func() { // stops at Close; Close waits for it
			defer n.f.loops.Done()
			n.accept(p)
		})
	}
	return nil
}

// Close closes all connections, and returns when no goroutine of the Net is left and no handler runs or will be called. It is
// idempotent, and may be called without Start. It blocks no longer than a handler does. The transport stays open; one that is
// no transport.ContextAccepter must be closed first.
func (n *Net) Close() error {
	n.cancel()
	n.mu.Lock()
	n.closed = true
	for c := range n.open {
		c.Close()
	}
	n.mu.Unlock()
	n.running.Wait()
	return nil
}

// GetConnection returns a connection to the node target that keeps itself connected until it is closed or ctx ends. It never
// fails for a target that cannot be reached, only with ErrClosed. It waits up to 250 ms for the first dial.
func (n *Net) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	c := newConn(ctx, n, target)
	if !n.goRun(c.run) { // stops when c is closed, ctx ends, or at Close
		c.cancel()
		return nil, ErrClosed
	}
	first := time.NewTimer(firstDial)
	defer first.Stop()
	select {
	case <-c.tried:
	case <-first.C:
	case <-c.ctx.Done():
	}
	return c, nil
}

// GetSnapshotConnection connects to the node target for one snapshot. It blocks up to 1.5 s, or until ctx ends, and returns
// why it failed.
func (n *Net) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	c, _, err := n.dial(ctx, transport.Snapshot, target)
	if err != nil {
		return nil, err
	}
	s := &snapshotConn{n: n, nc: c}
	s.stop = context.AfterFunc(ctx, func() { c.Close() })
	return s, nil
}

// accept serves what connects until the Net or the transport is closed.
func (n *Net) accept(p transport.Proto) {
	for {
		c, err := transport.AcceptContext(n.ctx, n.f.c.Transport, p)
		switch {
		case n.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			if err == nil {
				c.Close()
			}
			return
		case err != nil:
			n.f.lines.warn(n.f.c.Logger, "cannot accept connections", "proto", p.String(), "err", err)
			pause(n.ctx, redialMin) // whatever it is, it must not become a busy loop
		case !n.serve(c, p):
			c.Close()
		}
	}
}

// goRun runs f in a goroutine that Close waits for, or tells that the Net is closed.
func (n *Net) goRun(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.running.Go(f) // the caller says when it stops
	return true
}

// track makes Close close c. It tells whether the Net is still open; if not, c is the caller's to close.
func (n *Net) track(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.open[c] = struct{}{}
	return true
}

// drop closes c and forgets it.
func (n *Net) drop(c net.Conn) {
	n.mu.Lock()
	delete(n.open, c)
	n.mu.Unlock()
	c.Close()
}
