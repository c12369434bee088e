package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/rpc"
)

// errNoSession: the operation's session has ended, and no attempt was applied before.
var errNoSession = errors.New("session has ended")

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
	h := &wire.Header{From: n.ID(), Version: 1}
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

// attempt is one try of a call, at a node that may own the shard; relay: it may pass the call on. The returned outcome says what
// became of it there; hint names a likelier node, "" if none.
type attempt func(ctx context.Context, node string, relay bool) (outcome wire.Outcome, hint string)

// try makes attempts until one is DONE or ctx ends. maybe says that an attempt before may have been executed, err is nil or
// the end of ctx.
func (g *group) try(ctx context.Context, what string, f attempt) (maybe bool, err error) {
	pause := time.Duration(0) // the first hint is followed at once
	for {
		node, relay := g.target()
		actx, cancel := context.WithTimeout(ctx, g.n.attemptTime())
		outcome, hint := f(actx, node, relay)
		cancel()
		switch outcome {
		case wire.Outcome_DONE:
			g.served(node, relay)
			return maybe, nil
		case wire.Outcome_UNKNOWN:
			maybe = true
		}
		g.missed(node)
		if hint != "" && hint != node {
			g.setHint(hint)
			g.misses.Store(0)
		} else {
			pause = max(pause, firstPause)
		}
		g.n.stats.retries.Add(1)
		if !sleep(ctx, pause) {
			return maybe, gaveUp(ctx, what, maybe)
		}
		pause = min(max(2*pause, firstPause), lastPause)
	}
}

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

// call has op committed by the shard's owner, wherever it is. Repeating is safe: op carries (session, seq), or does the same
// twice. Errors: ErrNoQuorum: not done; ErrUnknown; errNoSession: not done; ErrClosed.
func (g *group) call(ctx context.Context, what string, op *fsmpb.Op) (*fsmpb.Result, error) {
	var res *fsmpb.Result
	maybe, err := g.try(ctx, what, func(ctx context.Context, node string, relay bool) (wire.Outcome, string) {
		reply := g.opAt(ctx, node, relay, op)
		res = reply.GetResult()
		return reply.GetOutcome(), reply.GetHint()
	})
	if err != nil {
		return nil, err
	}
	switch res.GetStatus() {
	case fsmpb.Result_NO_SESSION:
		if maybe {
			return nil, fmt.Errorf("%s: %w: the session ended before its outcome was known", what, ErrUnknown)
		}
		return nil, fmt.Errorf("%s: %w", what, errNoSession)
	case fsmpb.Result_BELOW:
		return nil, fmt.Errorf("%s: %w: its result is no longer kept", what, ErrUnknown)
	}
	return res, nil
}

// opAt gives op to a node, maybe this one.
func (g *group) opAt(ctx context.Context, node string, relay bool, op *fsmpb.Op) *wire.OpReply {
	if node == g.n.ID() {
		return g.opHere(ctx, relay, op)
	}
	reply := &wire.OpReply{}
	q := &wire.OpRequest{Header: g.n.header(), Shard: uint32(g.id), Relay: relay, Op: op}
	if err := g.n.ask(ctx, node, wire.MethodOp, q, reply); err != nil {
		return &wire.OpReply{Outcome: failedOutcome(err)}
	}
	return reply
}

// failedOutcome is what a request without an answer came to.
func failedOutcome(err error) wire.Outcome {
	if notDone(err) {
		return wire.Outcome_NOT_OWNER
	}
	return wire.Outcome_UNKNOWN
}

// opHere does op if this node owns the shard, else passes it on if it may.
func (g *group) opHere(ctx context.Context, relay bool, op *fsmpb.Op) *wire.OpReply {
	o := g.owned()
	if o == nil {
		likely := g.likely()
		if relay && likely != g.n.ID() {
			return g.opAt(ctx, likely, false, op)
		}
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: likely}
	}
	res, err := o.submit(ctx, op)
	switch {
	case err == nil:
		return &wire.OpReply{Outcome: wire.Outcome_DONE, Result: res}
	case errors.Is(err, errMaybe):
		return &wire.OpReply{Outcome: wire.Outcome_UNKNOWN}
	default:
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: g.likely()}
	}
}
