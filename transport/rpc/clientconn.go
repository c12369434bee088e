package rpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A clientConn is a client's connection to one address, and the calls that wait for an answer on it.
type clientConn struct {
	client *Client
	addr   string
	link   *link

	mu     sync.Mutex       // guards the fields below
	calls  map[uint64]*call // by id
	lastID uint64
	used   time.Time // when the last call ended
	broken error     // why there will be no more calls
}

// A call waits for its one answer. It is used again.
type call struct {
	answer chan answer // one slot
}

type answer struct {
	body []byte
	err  *RemoteError
	cut  error // the connection broke
}

func newClientConn(c *Client, nc net.Conn, addr string) *clientConn {
	return &clientConn{client: c, addr: addr, link: newLink(nc, &c.o), calls: make(map[uint64]*call), used: time.Now()}
}

// call sends m and waits. It returns errRetired, bare, if the connection had ended before.
func (c *clientConn) call(ctx context.Context, m message) ([]byte, error) {
	w := c.client.calls.Get().(*call)
	if m.id = c.enter(w); m.id == 0 {
		c.client.calls.Put(w)
		// Whoever noticed the end forgets the connection; be sure that it is before the caller looks for another one.
		c.client.drop(c)
		return nil, errRetired
	}
	at, stopped, err := c.link.send(&m, ctx.Done())
	switch {
	case stopped:
		err = ctx.Err()
		fallthrough
	case err != nil:
		c.leave(m.id, w)
		return nil, notSent(c.addr, err)
	}
	select {
	case a := <-w.answer:
		c.client.calls.Put(w)
		return c.result(a, at)
	case <-ctx.Done():
		return c.abandon(ctx, m.id, w, at)
	}
}

// result turns an answer into what Call returns.
func (c *clientConn) result(a answer, at ticket) ([]byte, error) {
	switch {
	case a.cut != nil && c.link.out.retract(at):
		return nil, notSent(c.addr, a.cut)
	case a.cut != nil:
		return nil, interrupted(c.addr, a.cut)
	case a.err != nil:
		return nil, a.err
	}
	return a.body, nil
}

// abandon ends a call whose context has ended: the request is taken back if it is still here, else the peer is told.
func (c *clientConn) abandon(ctx context.Context, id uint64, w *call, at ticket) ([]byte, error) {
	if a, answered := c.leave(id, w); answered {
		return c.result(a, at)
	}
	if c.link.out.retract(at) {
		return nil, notSent(c.addr, ctx.Err())
	}
	// It must go in even if the outbox is full: it is small, and there is at most one for each request that left. On a
	// broken link it is refused, and nobody needs it.
	_, _, _ = c.link.out.put(&message{kind: kindCancel, id: id}, true)
	return nil, interrupted(c.addr, ctx.Err())
}

// enter registers a call and returns its id, or 0 if the connection has ended.
func (c *clientConn) enter(w *call) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0
	}
	c.lastID++
	c.calls[c.lastID] = w
	return c.lastID
}

// leave withdraws a call and gives it back for use again. If its answer came first it returns that.
func (c *clientConn) leave(id uint64, w *call) (a answer, answered bool) {
	c.mu.Lock()
	_, waiting := c.calls[id]
	delete(c.calls, id)
	c.used = time.Now()
	c.mu.Unlock()
	if !waiting {
		a = <-w.answer // it was put there before the call was taken out
	}
	c.client.calls.Put(w)
	return a, !waiting
}

// readLoop hands out answers until the link breaks, then ends all calls.
func (c *clientConn) readLoop() {
	var buf []byte
	for {
		m, b, err := c.link.read(buf)
		if err != nil {
			c.end(err)
			return
		}
		buf = b
		switch m.kind {
		case kindResponse:
			body := m.body
			if cap(b) > keepSize {
				buf = nil // too large to keep: the caller may have it
			} else {
				body = bytes.Clone(body)
			}
			c.deliver(m.id, answer{body: body})
		case kindError:
			c.deliver(m.id, answer{err: &RemoteError{Code: m.code, Text: string(m.body)}})
		case kindPing:
		default:
			c.end(errProtocol)
			return
		}
	}
}

// deliver gives an answer to its call, unless the caller has left.
func (c *clientConn) deliver(id uint64, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.calls[id]
	if w == nil {
		return
	}
	delete(c.calls, id)
	w.answer <- a
	if len(c.calls) == 0 {
		c.used = time.Now()
	}
}

// end breaks the link and ends all calls.
func (c *clientConn) end(err error) {
	c.link.close(err)
	err = c.link.err // the first reason, if there was one
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
	}
	for id, w := range c.calls {
		delete(c.calls, id)
		w.answer <- answer{cut: err}
	}
	switch {
	case errors.Is(err, errProtocol):
		c.client.o.Logger.Warn("broke a connection", "peer", c.addr, "err", err)
	case !errors.Is(err, errIdle) && !errors.Is(err, net.ErrClosed):
		c.client.o.Logger.Debug("connection broken", "peer", c.addr, "err", err)
	}
}

// retireIdle closes the connection if it has been without calls for long. It runs at each tick of the writer.
func (c *clientConn) retireIdle() {
	c.mu.Lock()
	idle := len(c.calls) == 0 && time.Since(c.used) >= c.client.o.Idle
	if idle && c.broken == nil {
		c.broken = errIdle // from here on no call enters
	}
	c.mu.Unlock()
	if idle {
		c.link.close(errIdle)
	}
}
