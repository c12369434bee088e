package memnet

import (
	"errors"
	"io"
	"net"
	"time"
)

// An address is a host:port of the network in memory.
type address string

func (a address) Network() string { return "mem" }
func (a address) String() string  { return string(a) }

// A conn is one end of a connection.
type conn struct {
	owner         *Endpoint
	in, out       *stream
	local, remote address
}

// connectLocked joins two endpoints and returns the dialler's end and the listener's. The dialler's address is, as with
// sockets, one of its own host with a port that nobody listens at.
func connectLocked(from, to *Endpoint) (dialler, listener *conn) {
	host, _, _ := net.SplitHostPort(from.addr) // Listen made it, so it splits
	n, p := from.n, path{from.addr, to.addr}
	there, back := newStream(n, p), newStream(n, p.back())
	local, remote := address(n.freeLocked(host)), address(to.addr)
	dialler = &conn{owner: from, in: back, out: there, local: local, remote: remote}
	listener = &conn{owner: to, in: there, out: back, local: remote, remote: local}
	from.conns[dialler] = struct{}{}
	to.conns[listener] = struct{}{}
	return dialler, listener
}

func (c *conn) Read(b []byte) (int, error) {
	k, err := c.in.read(b)
	return k, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	k, err := c.out.write(b)
	return k, c.wrap("write", err)
}

func (c *conn) Close() error {
	c.owner.n.mu.Lock()
	defer c.owner.n.mu.Unlock()
	c.closeLocked()
	return nil
}

func (c *conn) closeLocked() {
	c.in.closeReadLocked()
	c.out.closeWriteLocked(time.Now())
	delete(c.owner.conns, c)
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.owner.n.mu.Lock()
	defer c.owner.n.mu.Unlock()
	if c.in.end.gone {
		return c.wrap("set", net.ErrClosed)
	}
	c.in.reads.setLocked(c.in, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.owner.n.mu.Lock()
	defer c.owner.n.mu.Unlock()
	if c.out.end.fin {
		return c.wrap("set", net.ErrClosed)
	}
	c.out.writes.setLocked(c.out, t)
	return nil
}

// wrap gives an error the form that errors of package net have. io.EOF stays bare.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}
