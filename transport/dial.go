package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Dial connects to addr, secures the connection with Config.Wrap and writes the header that names protocol p. It blocks
// until that is done, ctx ends (the error wraps ctx's), the peer refuses, or t is closed (net.ErrClosed). The header has
// left, but nothing says that the peer has read it: a peer that does not want p closes the connection. The caller
// closes the connection.
func (t *TCP) Dial(ctx context.Context, p Proto, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	c, err := t.dial(ctx, p, addr)
	switch {
	case err == nil:
		return c, nil
	case t.ctx.Err() != nil:
		return nil, t.errClosed("dial")
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = errors.Join(err, ctx.Err())
	}
	return nil, fmt.Errorf("transport: dial %v at %s: %w", p, addr, err)
}

func (t *TCP) dial(ctx context.Context, p Proto, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive()}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c, err := t.conns.add(raw)
	if err != nil {
		return nil, err
	}
	// The handshake and the header are bounded by ctx too: when it ends, a deadline in the past unblocks them.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	err = c.secure(t.config.Wrap, false)
	if err == nil {
		_, err = c.Write(appendHeader(nil, p))
	}
	if !stop() && err == nil {
		err = ctx.Err() // the past deadline may be set at any moment: the connection is of no use
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
