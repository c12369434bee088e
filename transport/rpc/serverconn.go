package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// A serverConn is one caller's connection, and the handlers that run for it.
type serverConn struct {
	server *Server
	from   string
	link   *link
	ctx    context.Context // ends when the link is broken, by Close too; parent of the handlers' contexts
	cancel context.CancelFunc
	slots  chan struct{} // one for each running handler

	mu      sync.Mutex                    // guards running
	running map[uint64]context.CancelFunc // by the call's id
}

// A task is one request under way. It is used again, with its buffer.
type task struct {
	conn   *serverConn
	msg    message
	buf    []byte // the message's body lies in it
	ctx    context.Context
	cancel context.CancelFunc
}

func newServerConn(s *Server, nc net.Conn) *serverConn {
	c := &serverConn{
		server:  s,
		from:    nc.RemoteAddr().String(),
		link:    newLink(nc, &s.o),
		slots:   make(chan struct{}, s.o.MaxInFlight),
		running: make(map[uint64]context.CancelFunc),
	}
	// Not a child of the server's: handlers must not see the end before the link is closed, or what they return then
	// would still reach the caller as an answer.
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// readLoop starts a handler for each request until the link breaks, then ends their contexts. It does not wait for them.
func (c *serverConn) readLoop() {
	defer c.cancel()
	for {
		k := c.server.tasks.Get().(*task)
		var err error
		k.msg, k.buf, err = c.link.read(k.buf)
		if err == nil {
			err = c.receive(k)
		}
		if err != nil {
			c.link.close(err)
			c.log(c.link.err)
			return
		}
	}
}

// receive acts on one message. An error breaks the link.
func (c *serverConn) receive(k *task) error {
	switch k.msg.kind {
	case kindRequest:
		return c.begin(k)
	case kindCancel:
		c.mu.Lock()
		cancel := c.running[k.msg.id]
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case kindPing:
	default:
		return fmt.Errorf("%w: a message of kind %d from a caller", errProtocol, k.msg.kind)
	}
	c.server.recycle(k)
	return nil
}

// begin waits for a free slot and starts the handler.
func (c *serverConn) begin(k *task) error {
	select {
	case c.slots <- struct{}{}:
	case <-c.link.done:
		return c.link.err
	}
	k.conn = c
	if k.msg.timeout > 0 {
		k.ctx, k.cancel = context.WithTimeout(c.ctx, k.msg.timeout)
	} else {
		k.ctx, k.cancel = context.WithCancel(c.ctx)
	}
	c.mu.Lock()
	_, twice := c.running[k.msg.id]
	if !twice {
		c.running[k.msg.id] = k.cancel
	}
	c.mu.Unlock()
	if twice {
		k.cancel()
		return fmt.Errorf("%w: two requests with id %d", errProtocol, k.msg.id)
	}
	// Stops when the handler has returned and its answer is queued or the link is broken; Close waits for it.
	c.server.wg.Go(k.run)
	return nil
}

// run runs the handler and queues its answer.
func (k *task) run() {
	c := k.conn
	body, err := c.server.h(k.ctx, Request{Method: k.msg.code, From: c.from, Body: k.msg.body})
	c.mu.Lock()
	delete(c.running, k.msg.id)
	c.mu.Unlock()
	k.cancel()
	m := message{kind: kindResponse, id: k.msg.id, body: body}
	if len(body) > c.server.o.MaxBody && err == nil {
		err = fmt.Errorf("rpc: the answer has %d bytes, at most %d", len(body), c.server.o.MaxBody)
	}
	if err != nil {
		e := remote(err)
		m = message{kind: kindError, id: k.msg.id, code: e.Code, body: []byte(e.Text[:min(len(e.Text), maxText)])}
	}
	// An error means that the link is broken: nobody waits for the answer.
	_, _, _ = c.link.send(&m, c.link.done)
	<-c.slots
	c.server.recycle(k)
}

// recycle keeps a task for the next request.
func (s *Server) recycle(k *task) {
	buf := k.buf
	if cap(buf) > keepSize {
		buf = nil
	}
	*k = task{buf: buf}
	s.tasks.Put(k)
}

// log tells why a link was broken, if that is news.
func (c *serverConn) log(err error) {
	switch {
	case errors.Is(err, errProtocol):
		c.server.o.Logger.Warn("broke a connection", "peer", c.from, "err", err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		c.server.o.Logger.Debug("connection broken", "peer", c.from, "err", err)
	}
}
