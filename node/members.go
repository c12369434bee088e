package node

import (
	"context"
	"fmt"
	"iter"
	"maps"

	"github.com/oarlock/oarlock/membership"
)

// A MemberState is what gossip thinks of a node. It decides nothing: only a shard's log ends a session or moves a shard.
type MemberState = membership.State

// States of a member.
const (
	MemberAlive   = membership.Alive
	MemberSuspect = membership.Suspect
	MemberFailed  = membership.Failed
	MemberLeft    = membership.Left
)

// A Member is a node as gossip sees it. Agreed says that the cluster's own records list it.
type Member struct {
	ID, Name, Addr, Zone string
	Tags                 map[string]string
	State                MemberState
	Agreed               bool
}

// Members yields the nodes that this node knows of, itself included, sorted by ID.
func (n *Node) Members() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for _, m := range n.net.gossip.Members() {
			if !yield(n.member(m)) {
				return
			}
		}
	}
}

// WatchMembers yields all members, then each whose record or state changed, until ctx ends or the node stops; then it yields
// that error last. Changes of one member are coalesced: a slow reader gets the latest, and holds up nobody.
func (n *Node) WatchMembers(ctx context.Context) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		ctx, end := n.watching(ctx)
		defer end()
		for m := range n.net.gossip.Watch(ctx) {
			if !yield(n.member(m), nil) {
				return
			}
		}
		err := context.Cause(ctx)
		if err == nil {
			err = ErrClosed
		}
		yield(Member{}, fmt.Errorf("watch members: %w", err))
	}
}

func (n *Node) member(m membership.Member) Member {
	return Member{
		ID:     m.ID,
		Name:   m.Name,
		Addr:   m.Addr,
		Zone:   m.Zone,
		Tags:   maps.Clone(m.Tags),
		State:  m.State,
		Agreed: n.agreed(m.ID),
	}
}

// memberOf is the member with that UUID; one that gossip does not know has only its ID.
func (n *Node) memberOf(id string) Member {
	if id == "" {
		return Member{}
	}
	if m, ok := n.net.gossip.Member(id); ok {
		return n.member(m)
	}
	return Member{ID: id, State: MemberFailed, Agreed: n.agreed(id)}
}

// agreed says whether the cluster's plan lists the node.
func (n *Node) agreed(id string) bool {
	cl := n.cluster.Load()
	if cl == nil {
		return false
	}
	for _, m := range cl.plan.GetNodes() {
		if m == id {
			return true
		}
	}
	return false
}

// alive says whether gossip sees the node alive.
func (n *Node) alive(id string) bool {
	m, ok := n.net.gossip.Member(id)
	return ok && m.State == membership.Alive
}

// foreign are the living nodes of other clusters that gossip sees: somebody's Join names addresses of two clusters. They never
// talk about anything but gossip.
func (n *Node) foreign() []string {
	cl := n.cluster.Load()
	if cl == nil {
		return nil
	}
	var out []string
	for _, m := range n.net.gossip.Members() {
		if m.Cluster != "" && m.Cluster != cl.plan.GetCluster() && m.State == membership.Alive {
			out = append(out, m.Name+" at "+m.Addr+" of cluster "+m.Cluster)
		}
	}
	return out
}
