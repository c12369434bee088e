package raftnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
)

var (
	errSilent = errors.New("raftnet: peer is silent")
	errMoved  = errors.New("raftnet: peer has another address now")
)

// A conn sends messages to one node and keeps itself connected. dragonboat calls SendMessageBatch from one goroutine.
type conn struct {
	n      *Net
	target string
	ctx    context.Context // ends with Close of this or of the Net, or with the context it was asked for under
	cancel context.CancelFunc
	tried  chan struct{} // closed when the first dial has ended, well or not
	done   chan struct{} // closed when run has ended
	live   atomic.Pointer[link]
	buf    []byte // the sender's
}

var _ raftio.IConnection = (*conn)(nil)

// A link is one connected stretch of a conn.
type link struct {
	nc    net.Conn
	addr  string
	turn  chan struct{} // holds one token while somebody writes: the sender, or the watcher its ping
	bulk  atomic.Bool   // a message of many pieces is being written; pongs come late then
	heard atomic.Int64  // when the peer was last heard, in nanoseconds since born
	born  time.Time
}

func newConn(ctx context.Context, n *Net, target string) *conn {
	c := &conn{n: n, target: target, tried: make(chan struct{}), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.ctx, cancel)
	c.ctx, c.cancel = ctx, func() { stop(); cancel() }
	return c
}

// Close ends the connection and returns when its goroutine has ended.
func (c *conn) Close() {
	c.cancel()
	<-c.done
}

// SendMessageBatch writes the batch, or drops it if there is no connection or it breaks. It returns nil: Raft sends again
// what matters. It blocks as long as the peer takes bytes, and at most two seconds while it does not. It does not keep batch.
func (c *conn) SendMessageBatch(batch pb.MessageBatch) error {
	count := &c.n.f.count
	l := c.live.Load()
	if l == nil {
		count.dropped.Add(uint64(len(batch.Requests)))
		return nil
	}
	frame, err := encode(c.buf, frameBatch, &batch, batchLimit)
	c.buf = keep(frame)
	if err != nil {
		count.dropped.Add(uint64(len(batch.Requests)))
		c.n.f.lines.error(c.n.f.c.Logger, "cannot send messages", "peer", c.target, "err", err)
		return nil
	}
	if err := l.send(frame); err != nil {
		count.dropped.Add(uint64(len(batch.Requests)))
		l.nc.Close() // the watcher notices, and dials again
		return nil
	}
	count.sent.Add(uint64(len(batch.Requests)))
	count.sentBytes.Add(uint64(len(frame)))
	return nil
}

// run dials, watches, and dials again, until the conn's context ends.
func (c *conn) run() {
	defer close(c.done)
	wait, tried := redialMin, false
	for c.ctx.Err() == nil {
		begun := time.Now()
		nc, addr, err := c.n.dial(c.ctx, transport.Raft, c.target)
		if err == nil {
			l := &link{nc: nc, addr: addr, turn: make(chan struct{}, 1), born: time.Now()}
			c.live.Store(l)
			if !tried {
				close(c.tried)
				tried = true
			}
			err = c.watch(l)
			c.live.Store(nil)
			c.n.drop(nc)
		}
		if !tried {
			close(c.tried)
			tried = true
		}
		if c.ctx.Err() != nil {
			return
		}
		if time.Since(begun) > silenceLimit || errors.Is(err, errMoved) {
			wait = redialMin // it was up: a peer that answers and hangs up at once is not
		}
		pause(c.ctx, wait)
		wait = min(2*wait, redialMax)
	}
}

// watch reads pongs, sends pings and looks whether the peer has moved, until the link is of no use.
func (c *conn) watch(l *link) error {
	stop := context.AfterFunc(c.ctx, func() { l.nc.Close() })
	defer stop()
	var pongs [16]byte
	pinged := l.born
	for {
		if err := l.nc.SetReadDeadline(time.Now().Add(watchEvery)); err != nil {
			return c.broke(l, err)
		}
		n, err := l.nc.Read(pongs[:])
		if n > 0 {
			l.touch()
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return c.broke(l, err)
		}
		if silence := time.Since(l.born) - time.Duration(l.heard.Load()); silence > silenceLimit && !l.bulk.Load() {
			return c.broke(l, fmt.Errorf("%w for %v", errSilent, silence))
		}
		if addr, ok := c.n.f.c.Resolve(c.target); ok && addr != l.addr {
			return c.broke(l, fmt.Errorf("%w: %s", errMoved, addr))
		}
		if time.Since(pinged) >= pingEvery {
			pinged = time.Now()
			if err := l.ping(); err != nil {
				return c.broke(l, err)
			}
		}
	}
}

// broke notes that the link has ended otherwise than by Close.
func (c *conn) broke(l *link, err error) error {
	if c.ctx.Err() == nil {
		c.n.f.count.broken.Add(1)
		c.n.f.lines.debug(c.n.f.c.Logger, "connection to peer broke", "peer", c.target, "addr", l.addr, "err", err)
	}
	return err
}

// send writes a frame, when it is its turn: a ping in between takes a second at the most.
func (l *link) send(frame []byte) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if len(frame) <= piece {
		return writePieces(l.nc, frame, stallLimit)
	}
	l.bulk.Store(true)
	defer l.bulk.Store(false)
	err := writePieces(l.nc, frame, stallLimit)
	l.touch() // it took the bytes, and had no pings to answer meanwhile
	return err
}

// ping writes a ping unless somebody writes already: then that one finds out whether the peer takes anything.
func (l *link) ping() error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	default:
		return nil
	}
	frame, err := transport.AppendFrame(nil, []byte{framePing}, batchLimit)
	if err != nil {
		return err
	}
	return writePieces(l.nc, frame, stallLimit)
}

func (l *link) touch() { l.heard.Store(int64(time.Since(l.born))) }

// piece is how much is written under one deadline, so that a slow peer that does take bytes is told from a stuck one.
const piece = 256 << 10

// writePieces writes b, and fails once a piece of it makes no progress within stall.
func writePieces(nc net.Conn, b []byte, stall time.Duration) error {
	for len(b) > 0 {
		if err := nc.SetWriteDeadline(time.Now().Add(stall)); err != nil {
			return err
		}
		n, err := nc.Write(b[:min(len(b), piece)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
