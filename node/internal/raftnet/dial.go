package raftnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// dial connects to the present address of target and introduces this node. The connection is tracked; drop ends it.
func (n *Net) dial(ctx context.Context, p transport.Proto, target string) (c net.Conn, addr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	stop := context.AfterFunc(n.ctx, cancel)
	defer stop()
	defer func() {
		if err != nil {
			n.f.count.dialErrors.Add(1)
			n.logDial(target, addr, err)
		}
	}()
	addr, ok := n.f.c.Resolve(target)
	if !ok {
		return nil, "", fmt.Errorf("%w: %s", errUnknownAddr, target)
	}
	n.f.count.dials.Add(1)
	if c, err = n.f.c.Transport.Dial(ctx, p, addr); err != nil {
		return nil, addr, fmt.Errorf("dial %s: %w", addr, err)
	}
	if !n.track(c) {
		c.Close()
		return nil, addr, ErrClosed
	}
	if err := n.introduce(ctx, c, target); err != nil {
		n.drop(c)
		return nil, addr, fmt.Errorf("introduce to %s: %w", addr, err)
	}
	return c, addr, nil
}

// introduce sends the hello and waits for the answer, until ctx ends.
func (n *Net) introduce(ctx context.Context, c net.Conn, target string) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	h := hello{format: n.f.c.Format, boot: n.f.c.Boot, cluster: n.f.c.Cluster, node: n.f.c.Self, meantTo: target}
	if err := transport.WriteFrame(c, h.append(nil), helloLimit); err != nil {
		return err
	}
	answer, err := transport.ReadFrame(c, nil, helloLimit)
	if err != nil {
		return err
	}
	if err := n.f.c.judged(answer, target); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

// greet is the receiver's side: it reads the hello and answers it. The error of a peer that is refused says why.
func (n *Net) greet(c net.Conn) (hello, error) {
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return hello{}, err
	}
	b, err := transport.ReadFrame(c, nil, helloLimit)
	if err != nil {
		return hello{}, err
	}
	h, err := decodeHello(b)
	answer := []byte{wrongVersion}
	if err == nil {
		answer, err = n.f.c.judge(h)
	} else if !errors.Is(err, errWireVersion) {
		return h, err
	}
	if werr := transport.WriteFrame(c, answer, helloLimit); err == nil {
		err = werr
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	return h, err
}

// logDial says why a peer cannot be reached: loudly if somebody has to do something about it, else for the curious. Each
// peer has its line once in a while only, as dials are repeated for ever.
func (n *Net) logDial(target, addr string, err error) {
	switch {
	case n.ctx.Err() != nil:
	case errors.Is(err, ErrForeignCluster), errors.Is(err, errWireVersion):
		n.f.count.refused.Add(1)
		n.f.lines.error(n.f.c.Logger, "peer refused this node", "peer", target, "addr", addr, "err", err)
	case errors.Is(err, errIsTwin):
		n.f.count.refused.Add(1)
		n.f.c.Refused(target)
	case errors.Is(err, errTwin):
		n.f.lines.error(n.f.c.Logger, "refused a peer", "peer", target, "addr", addr, "err", err)
	case errors.Is(err, errWrongNode):
		n.f.lines.warn(n.f.c.Logger, "another node is at the address of a peer", "peer", target, "addr", addr)
	default:
		n.f.lines.debug(n.f.c.Logger, "cannot reach peer", "peer", target, "addr", addr, "err", err)
	}
}
