package rpc

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// A peer is what a client knows of one address. One of the fields is set: a connection, a dial under way, or a dial that
// failed a moment ago.
type peer struct {
	conn   *clientConn
	dial   *dial
	failed *dial
	until  time.Time // when a failed dial is forgotten
}

// A dial is shared by all who wait for it.
type dial struct {
	done chan struct{} // closed when conn or err is set
	conn *clientConn
	err  error
}

// connection returns the connection to addr, after dialling if there is none. It waits for the dial until ctx ends.
func (c *Client) connection(ctx context.Context, addr string) (*clientConn, error) {
	c.mu.RLock()
	p := c.peers[addr]
	if p != nil && p.conn != nil {
		defer c.mu.RUnlock()
		return p.conn, nil
	}
	c.mu.RUnlock()
	d := c.shareDial(addr)
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// shareDial returns the dial to addr that is done, under way, or failed a moment ago, or begins one.
func (c *Client) shareDial(addr string) *dial {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	p := c.peers[addr]
	switch {
	case c.closed:
		return ended(nil, net.ErrClosed)
	case p == nil:
	case p.conn != nil:
		return ended(p.conn, nil)
	case p.dial != nil:
		return p.dial
	case now.Before(p.until):
		return p.failed
	}
	c.forgetLocked(now)
	d := &dial{done: make(chan struct{})}
	c.peers[addr] = &peer{dial: d}
	// Stops when the dial has succeeded or failed, DialTimeout or Close at the latest; Close waits for it.
	c.wg.Go(func() { c.runDial(d, addr) })
	return d
}

func ended(conn *clientConn, err error) *dial {
	d := &dial{done: make(chan struct{}), conn: conn, err: err}
	close(d.done)
	return d
}

// forgetLocked drops failures that no longer matter, so that addresses of nodes that moved do not gather.
func (c *Client) forgetLocked(now time.Time) {
	for addr, p := range c.peers {
		if p.failed != nil && !now.Before(p.until) {
			delete(c.peers, addr)
		}
	}
}

// runDial dials and enters the outcome.
func (c *Client) runDial(d *dial, addr string) {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.DialTimeout)
	defer cancel()
	nc, err := c.t.Dial(ctx, transport.RPC, addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(d.done)
	switch {
	case err == nil && c.closed:
		_ = nc.Close()
		d.err = net.ErrClosed
	case err != nil && c.closed:
		d.err = net.ErrClosed
	case err != nil:
		d.err = fmt.Errorf("rpc: dial: %w", err)
		c.peers[addr] = &peer{failed: d, until: time.Now().Add(c.o.DialRest)}
	default:
		d.conn = newClientConn(c, nc, addr)
		c.peers[addr] = &peer{conn: d.conn}
		c.startLocked(d.conn)
	}
}

// startLocked starts the two goroutines of a connection.
func (c *Client) startLocked(conn *clientConn) {
	// Stops when the link breaks, which Close sees to; Close waits for it.
	c.wg.Go(func() { conn.link.writeLoop(conn.retireIdle) })
	// Stops when the link breaks, which Close sees to; Close waits for it.
	c.wg.Go(func() {
		conn.readLoop()
		c.drop(conn)
	})
}

// drop forgets a connection, so that the next call dials.
func (c *Client) drop(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[conn.addr]; p != nil && p.conn == conn {
		delete(c.peers, conn.addr)
	}
}
