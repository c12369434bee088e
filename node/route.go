package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/rpc"
)

// Pauses between the attempts of a call.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// watching is the context of an iterator, whose caller's code runs in between: it ends with ctx or the node, and holds up no Close.
func (n *Node) watching(ctx context.Context) (c context.Context, end func()) {
	c, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.life.ctx, func() { cancel(context.Cause(n.life.ctx)) }) // runs once, unless stopped
	return c, func() {
		stop()
		cancel(nil)
	}
}

// begin admits a public call. The returned context ends with ctx, with the node, and, if bounded and ctx has no deadline, after
// RequestTimeout. The call must call end when it returns.
func (n *Node) begin(ctx context.Context, bounded bool) (c context.Context, end func(), err error) {
	if !n.life.calls.enter() {
		return nil, nil, n.closedErr()
	}
	if n.life.ctx.Err() != nil {
		n.life.calls.leave()
		return nil, nil, n.closedErr()
	}
	c, stop := n.watching(ctx)
	release := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok && bounded {
		c, release = context.WithTimeout(c, n.c.RequestTimeout)
	}
	return c, func() {
		release()
		stop()
		n.life.calls.leave()
	}, nil
}

func (n *Node) closedErr() error {
	if err := n.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}

// sessionEnded is the error of a call whose session ended: ErrClosed if that was because the node ends, else ErrLost.
func (n *Node) sessionEnded() error {
	n.life.mu.Lock()
	ending := n.life.closed != nil
	n.life.mu.Unlock()
	if ending {
		return n.closedErr()
	}
	return fmt.Errorf("%w: the session ended", ErrLost)
}

// header opens this node's requests.
func (n *Node) header() *wire.Header {
	h := &wire.Header{From: n.ID(), Version: 1, Incarnation: n.me.Incarnation, Nonce: n.net.nonce}
	if cl := n.cluster.Load(); cl != nil {
		h.Cluster, h.Version = cl.plan.GetCluster(), cl.plan.GetFormat()
	}
	return h
}

// errNoAddress: gossip knows no address of the node.
var errNoAddress = errors.New("no address is known")

// ask calls a method of another node. Errors are those of rpc.Client.Call, or errNoAddress.
func (n *Node) ask(ctx context.Context, node string, method uint16, q, reply proto.Message) error {
	addr, ok := n.net.gossip.Addr(node)
	if !ok {
		return fmt.Errorf("node %s: %w", node, errNoAddress)
	}
	return n.askAddr(ctx, addr, method, q, reply)
}

func (n *Node) askAddr(ctx context.Context, addr string, method uint16, q, reply proto.Message) error {
	b, err := proto.Marshal(q)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	n.stats.requestsSent.Add(1)
	body, err := n.net.client.Call(ctx, addr, method, b)
	if err != nil {
		var remote *rpc.RemoteError
		if errors.As(err, &remote) && remote.Code == wire.CodeTwin {
			n.refused(addr)
		}
		return err
	}
	if err := proto.Unmarshal(body, reply); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	return nil
}

// notDone says that a failed request was certainly not executed.
func notDone(err error) bool {
	var remote *rpc.RemoteError
	return errors.Is(err, rpc.ErrNotSent) || errors.Is(err, errNoAddress) || errors.As(err, &remote)
}

// attemptTime bounds one attempt of a call.
func (n *Node) attemptTime() time.Duration { return max(n.c.ElectionTimeout*3/2, 500*time.Millisecond) }

// sleep waits for d. It says whether it did: not when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
