package node

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// A ShardOwner says which node owns a shard, under which token. The zero Member: no owner is known.
type ShardOwner struct {
	Shard  int
	Member Member
	Token  Token
}

// Owner returns the shard's owner and its token. The owner itself answered, under a good lease, after the call began. Errors:
// ErrNoQuorum when no owner was reached in time, ErrInvalid, ErrClosed.
func (n *Node) Owner(ctx context.Context, shard int) (Member, Token, error) {
	ctx, end, err := n.begin(ctx, true)
	if err != nil {
		return Member{}, 0, fmt.Errorf("owner of shard %d: %w", shard, err)
	}
	defer end()
	cl, err := n.waitCluster(ctx)
	if err != nil {
		return Member{}, 0, err
	}
	if shard < 0 || shard > cl.shards() {
		return Member{}, 0, fmt.Errorf("owner of shard %d: %w: the cluster has 1 to %d", shard, ErrInvalid, cl.shards())
	}
	node, token, err := cl.groups[shard].owner(ctx)
	if err != nil {
		return Member{}, 0, err
	}
	return n.memberOf(node), token, nil
}

func (g *group) owner(ctx context.Context) (node string, t Token, err error) {
	reply, _, err := g.ask(ctx, "find owner", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Identify{Identify: &wire.Identify{}}})
	return reply.GetIdentity().GetNode(), Token(reply.GetIdentity().GetToken()), err
}

// WatchOwners yields the current owner of each user shard and then changes, until ctx ends or the node stops; then it yields
// that error last. It tells what this node has heard, which may be late: a node with a replica hears from its log, another asks every second.
// Changes between two reads are coalesced: the latest is never lost, and a loss and regain shows as a new token.
func (n *Node) WatchOwners(ctx context.Context) iter.Seq2[ShardOwner, error] {
	return func(yield func(ShardOwner, error) bool) {
		ctx, end := n.watching(ctx)
		defer end()
		cl, err := n.waitCluster(ctx)
		if err != nil {
			yield(ShardOwner{}, err)
			return
		}
		last := make(map[int]ShardOwner, cl.shards())
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			moved := n.owning.next()
			for _, g := range cl.groups[1:] {
				now := g.heard(ctx)
				if was, ok := last[now.Shard]; ok && was.Token == now.Token && was.Member.ID == now.Member.ID {
					continue
				}
				last[now.Shard] = now
				if !yield(now, nil) {
					return
				}
			}
			select {
			case <-moved:
			case <-look.C:
			case <-ctx.Done():
				yield(ShardOwner{}, fmt.Errorf("watch owners: %w", context.Cause(ctx)))
				return
			}
		}
	}
}

// heard is the owner as far as this node has heard.
func (g *group) heard(ctx context.Context) ShardOwner {
	s := ShardOwner{Shard: int(g.id)}
	if g.local != nil {
		m := g.local.machine.Load()
		if m == nil {
			return s
		}
		if c := m.Claim(); c.Token != 0 && !c.Released {
			s.Member, s.Token = g.n.memberOf(c.Node), c.Token
		}
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if node, t, err := g.owner(ctx); err == nil {
		s.Member, s.Token = g.n.memberOf(node), t
	}
	return s
}
