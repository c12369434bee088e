package transport

import (
	"fmt"
	"net"
	"sync"
)

// A conn is a connection that its transport knows of, so that Close can close it.
type conn struct {
	net.Conn          // what users read and write: raw, or the result of Wrap
	raw      net.Conn // the socket
	set      *connSet
}

// secure replaces the socket by what wrap makes of it.
func (c *conn) secure(wrap func(net.Conn, bool) (net.Conn, error), server bool) error {
	if wrap == nil {
		return nil
	}
	wrapped, err := wrap(c.raw, server)
	if err != nil {
		return fmt.Errorf("transport: secure the connection: %w", err)
	}
	c.Conn = wrapped
	return nil
}

// Close closes the connection and forgets it. Later calls do nothing.
func (c *conn) Close() error {
	if !c.set.remove(c) {
		return nil
	}
	return c.Conn.Close()
}

// A connSet is the open connections of a transport.
type connSet struct {
	mu     sync.Mutex // guards the fields below
	open   map[*conn]struct{}
	closed bool
}

// add enters a socket. If the set is closed already it closes the socket and returns net.ErrClosed.
func (s *connSet) add(raw net.Conn) (*conn, error) {
	c := &conn{Conn: raw, raw: raw, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		raw.Close()
		return nil, net.ErrClosed
	}
	s.open[c] = struct{}{}
	return c, nil
}

// remove says whether c was still in the set.
func (s *connSet) remove(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.open[c]
	delete(s.open, c)
	return ok
}

// closeAll closes the sockets themselves: a polite close of a secured connection may wait for a dead peer.
func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		c.raw.Close()
		delete(s.open, c)
	}
}
