package transport

import (
	"context"
	"net"
	"time"
)

// A Proto names one of the protocols that share a node's address. It is the byte that follows the magic at the
// start of each connection.
type Proto byte

// The protocols of one port.
const (
	Raft     Proto = 1 // Raft messages, framed
	RPC      Proto = 2 // calls between nodes, framed and pipelined
	Gossip   Proto = 3 // memberlist's streams
	Snapshot Proto = 4 // bulk: Raft snapshots, on connections of their own
)

// MaxPacket is the largest gossip packet in bytes: what fits a UDP datagram on any path that matters here.
const MaxPacket = 64 << 10

// A Packet is one gossip datagram.
type Packet struct {
	Data []byte    // owned by the receiver
	From string    // host:port of the sender
	At   time.Time // when it was read
}

// A Transport moves bytes between processes: streams told apart by Proto, and packets, all on one address.
// It is safe for concurrent use. The TCP and UDP one is made by Listen, the one in memory by memnet.
type Transport interface {
	// Addr is the address that peers reach this transport at, host:port, with the real port after ":0".
	Addr() string
	// Accept waits for the next connection of protocol p. It returns net.ErrClosed once the transport is closed.
	// A protocol that nobody accepts keeps at most a small backlog; connections beyond it are closed.
	Accept(p Proto) (net.Conn, error)
	// Dial opens a connection of protocol p to addr. It returns when the connection is usable, or when ctx ends.
	Dial(ctx context.Context, p Proto, addr string) (net.Conn, error)
	// Packets delivers the datagrams that arrive. It is closed when the transport is closed. A reader that is too
	// slow loses packets, never blocks the transport.
	Packets() <-chan Packet
	// WriteTo sends one datagram of at most MaxPacket bytes. No error does not mean that it arrived. It does not keep b.
	WriteTo(b []byte, addr string) error
	// Close closes the listeners, all connections accepted or dialled through the transport, and the packet
	// channel, and waits for the transport's goroutines. It is idempotent.
	Close() error
}
