package transport

import (
	"context"
	"net"
)

// A ContextAccepter is a Transport whose wait for a connection can be given up without closing the transport. Those of
// this module all are.
type ContextAccepter interface {
	AcceptContext(ctx context.Context, p Proto) (net.Conn, error)
}

// AcceptContext waits for the next connection of protocol p at t until ctx ends; then the error wraps ctx's. If t is no
// ContextAccepter, only closing t ends the wait. A user of one protocol can so stop before the transport does.
func AcceptContext(ctx context.Context, t Transport, p Proto) (net.Conn, error) {
	if c, ok := t.(ContextAccepter); ok {
		return c.AcceptContext(ctx, p)
	}
	return t.Accept(p)
}
