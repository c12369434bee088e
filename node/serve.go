package node

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/rpc"
)

// serve answers another node's request. An error means that nothing was done.
func (n *Node) serve(ctx context.Context, r rpc.Request) ([]byte, error) {
	if !n.life.calls.enter() {
		return nil, &rpc.RemoteError{Code: wire.CodeClosing, Text: "the node is closing"}
	}
	defer n.life.calls.leave()
	n.stats.requestsServed.Add(1)
	switch r.Method {
	case wire.MethodOwner:
		return onShard(n, r, func(g *group, q *wire.OwnerRequest) proto.Message {
			if q.GetAsk() == nil {
				return nil
			}
			return g.askHere(ctx, q)
		})
	case wire.MethodFollow:
		return onShard(n, r, func(g *group, _ *wire.FollowRequest) proto.Message { return g.followHere(ctx) })
	case wire.MethodChanges:
		return onShard(n, r, func(g *group, q *wire.ChangesRequest) proto.Message { return g.changesFor(ctx, q) })
	case wire.MethodRenew:
		return handle(n, r, func(q *wire.RenewRequest) (proto.Message, error) {
			if _, err := n.served(q.GetHeader(), 0); err != nil {
				return nil, err
			}
			return n.renewHere(ctx, q), nil
		})
	case wire.MethodPlan:
		return handle(n, r, func(q *wire.PlanRequest) (proto.Message, error) {
			return n.founding.answer(q, len(n.founding.founded()) > 0)
		})
	case wire.MethodCluster:
		return handle(n, r, func(q *wire.ClusterRequest) (proto.Message, error) {
			if err := n.settle(q); err != nil {
				return nil, err
			}
			return n.founding.describe(q), nil
		})
	}
	return nil, invalidRequest(r.Method)
}

func invalidRequest(method uint16) error {
	return &rpc.RemoteError{Code: wire.CodeInvalid, Text: fmt.Sprintf("method %d: cannot read the request", method)}
}

// message is a pointer to a generated message, a request.
type message[T any] interface {
	*T
	proto.Message
	GetHeader() *wire.Header
}

// handle decodes a request, and encodes the reply that f gives.
func handle[T any, M message[T]](n *Node, r rpc.Request, f func(M) (proto.Message, error)) ([]byte, error) {
	q := M(new(T))
	if err := proto.Unmarshal(r.Body, q); err != nil {
		n.log.Warn("request cannot be read", "peer", r.From, "method", r.Method, "err", err)
		return nil, invalidRequest(r.Method)
	}
	if err := n.admit(r.Method, q.GetHeader()); err != nil {
		return nil, err
	}
	reply, err := f(q)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(reply)
}

// shardMessage is a request that is for one shard.
type shardMessage[T any] interface {
	message[T]
	GetShard() uint32
}

// onShard is handle for a request to one shard. A nil reply refuses it.
func onShard[T any, M shardMessage[T]](n *Node, r rpc.Request, f func(*group, M) proto.Message) ([]byte, error) {
	return handle(n, r, func(q M) (proto.Message, error) {
		g, err := n.served(q.GetHeader(), q.GetShard())
		if err != nil {
			return nil, err
		}
		reply := f(g, q)
		if reply == nil {
			return nil, invalidRequest(r.Method)
		}
		return reply, nil
	})
}

// served is the group that a request is for. A caller of another cluster, or of a format version that this node does not
// speak, is refused.
func (n *Node) served(h *wire.Header, shard uint32) (*group, error) {
	cl := n.cluster.Load()
	switch {
	case cl == nil:
		return nil, &rpc.RemoteError{Code: wire.CodeClosing, Text: "the node belongs to no cluster yet"}
	case h.GetCluster() != cl.plan.GetCluster():
		return nil, &rpc.RemoteError{Code: wire.CodeForeign, Text: fmt.Sprintf("caller is of cluster %q, this node of %q", h.GetCluster(), cl.plan.GetCluster())}
	case h.GetVersion() < minFormat || h.GetVersion() > n.maxFormat():
		return nil, &rpc.RemoteError{Code: wire.CodeVersion, Text: fmt.Sprintf("caller speaks version %d, this node %d to %d", h.GetVersion(), minFormat, n.maxFormat())}
	}
	g := n.group(int(shard))
	if g == nil {
		return nil, &rpc.RemoteError{Code: wire.CodeInvalid, Text: fmt.Sprintf("there is no shard %d", shard)}
	}
	return g, nil
}
