package raftnet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// readBuffer is how much is read from a connection at a time.
const readBuffer = 64 << 10

// errHandler says that dragonboat panicked over what a peer sent.
var errHandler = errors.New("raftnet: handler panicked")

// serve takes an accepted connection, or tells that the Net is closed.
func (n *Net) serve(c net.Conn, p transport.Proto) bool {
	if !n.track(c) {
		return false
	}
	started := n.goRun(func() { // stops when the connection ends, which Close sees to
		defer n.drop(c)
		n.receive(c, p)
	})
	if !started {
		n.drop(c)
	}
	return started
}

// receive greets the peer and reads what it sends until the connection ends.
func (n *Net) receive(c net.Conn, p transport.Proto) {
	from := c.RemoteAddr().String()
	h, err := n.greet(c)
	if err == nil {
		n.f.c.Logger.Debug("peer connected", "peer", h.node, "addr", from, "proto", p.String(), "format", h.format)
		if p == transport.Snapshot {
			err = n.readChunks(c, h)
		} else {
			err = n.readMessages(c, h)
		}
	}
	n.logReceive(h.node, from, err)
}

// readMessages hands batches to dragonboat and answers pings.
func (n *Net) readMessages(c net.Conn, h hello) error {
	r := bufio.NewReaderSize(c, readBuffer)
	var buf []byte
	for {
		b, err := readFrame(c, r, buf, batchLimit, idleLimit)
		if err != nil {
			return err
		}
		switch b[0] {
		case framePing:
			err = answer(c, pong)
		case frameBatch:
			err = n.takeBatch(b[1:], h)
		default:
			err = fmt.Errorf("%w: frame of kind %d", errMalformed, b[0])
		}
		if err != nil {
			return err
		}
		buf = keep(b)
	}
}

func (n *Net) takeBatch(b []byte, h hello) error {
	node := h.node
	batch, err := decodeBatch(b, node)
	if err != nil {
		return err
	}
	if !n.f.c.Admit(node, h.boot) { // it was started again meanwhile; it hears so when it calls again
		return errTwin
	}
	if learn := n.f.c.Learn; learn != nil {
		for _, m := range batch.Requests {
			learn(m.ShardID, m.From, node)
		}
		batch.SourceAddress = "" // dragonboat would add it to its registry as if a log had said so
	}
	n.f.count.received.Add(uint64(len(batch.Requests)))
	return guarded(func() { n.messages(batch) })
}

// readChunks hands chunks to dragonboat and acknowledges each.
func (n *Net) readChunks(c net.Conn, h hello) error {
	r := bufio.NewReaderSize(c, readBuffer)
	var buf []byte
	for {
		b, err := readFrame(c, r, buf, chunkLimit, chunkIdle)
		if err != nil {
			return err
		}
		if b[0] != frameChunk {
			return fmt.Errorf("%w: frame of kind %d", errMalformed, b[0])
		}
		chunk, err := decodeChunk(b[1:])
		if err != nil {
			return err
		}
		buf = b[:0] // at most chunkLimit, and the next chunk needs it
		if !n.f.c.Admit(h.node, h.boot) {
			return errTwin
		}
		ok := false
		err = guarded(func() { ok = n.chunks(chunk) })
		if err != nil || !ok {
			return errors.Join(err, answer(c, refused))
		}
		n.f.count.takenChunks.Add(1)
		if err := answer(c, taken); err != nil {
			return err
		}
	}
}

// readFrame reads a frame that is not empty, and fails if nothing comes for idle. A frame that has begun may take as long as
// its bytes keep coming: each step of it gets the time anew.
func readFrame(c net.Conn, r *bufio.Reader, buf []byte, limit int, idle time.Duration) ([]byte, error) {
	b, err := transport.ReadFrame(&patient{c, r, idle}, buf, limit)
	if err != nil {
		return b, err
	}
	if len(b) == 0 {
		return b, fmt.Errorf("%w: empty frame", errMalformed)
	}
	return b, nil
}

// patient is a reader that waits up to idle for each read, not for all of them together.
type patient struct {
	c    net.Conn
	r    *bufio.Reader
	idle time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if p.r.Buffered() == 0 {
		if err := p.c.SetReadDeadline(time.Now().Add(p.idle)); err != nil {
			return 0, err
		}
	}
	return p.r.Read(b)
}

// answer writes one byte to a peer that always reads.
func answer(c net.Conn, b byte) error {
	return writePieces(c, []byte{b}, stallLimit)
}

// guarded runs a handler of dragonboat's. It panics over what it cannot do, a full disk for one; a peer that caused it loses
// its connection, and the process goes on. Its locks are released by deferred calls.
func guarded(handler func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errHandler, p)
		}
	}()
	handler()
	return nil
}

// logReceive writes the line about a connection that has ended, unless it ended as connections do.
func (n *Net) logReceive(node, from string, err error) {
	if n.ctx.Err() != nil {
		return
	}
	log, lines, count := n.f.c.Logger, &n.f.lines, &n.f.count
	var timeout net.Error
	switch {
	case errors.Is(err, ErrForeignCluster), errors.Is(err, errWireVersion), errors.Is(err, errTwin):
		count.refused.Add(1)
		lines.error(log, "refused a peer", "peer", hostOf(from), "node", node, "err", err)
	case errors.Is(err, errWrongNode):
		count.refused.Add(1)
		lines.debug(log, "refused a peer", "peer", hostOf(from), "node", node, "err", err)
	case errors.Is(err, errHandler):
		count.panics.Add(1)
		log.Error("cannot take what a peer sent", "peer", node, "addr", from, "err", err)
	case errors.Is(err, errMalformed), errors.Is(err, errNotHello), errors.Is(err, transport.ErrFrameCorrupt), errors.Is(err, transport.ErrFrameTooLarge):
		count.malformed.Add(1)
		lines.warn(log, "closed a connection for what it sent", "peer", hostOf(from), "node", node, "err", err)
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.As(err, &timeout):
		log.Debug("peer disconnected", "peer", node, "addr", from, "err", err)
	default:
		log.Debug("connection from peer broke", "peer", node, "addr", from, "err", err)
	}
}

// hostOf is the host of an address: ports of callers differ with each connection, and must not defeat the limit of lines.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
