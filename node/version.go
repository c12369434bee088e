package node

import (
	"context"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// commonFormat is the newest cluster format version that all nodes of the cluster speak, 0 if one of them was never heard of.
// What gossip says of a node that is down still counts: it may come back with that binary.
func (n *Node) commonFormat(cl *cluster) uint32 {
	v := n.maxFormat()
	for _, id := range cl.plan.GetNodes() {
		m, ok := n.net.gossip.Member(id)
		if !ok {
			return 0
		}
		v = min(v, m.MaxVersion)
	}
	return v
}

// raise brings a shard that this node owns to the newest format version that every node speaks, by one stamped entry. From
// then on older binaries refuse to open it.
func (n *Node) raise(ctx context.Context, g *group) {
	o := g.owned()
	if o == nil {
		return
	}
	now := o.l.machine.Load().Version()
	to := n.commonFormat(n.cluster.Load())
	if to <= now {
		return
	}
	if _, err := o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_Raise{Raise: &fsmpb.Raise{Version: to}}}); err == nil {
		n.log.Info("raised format version", "shard", g.id, "from", now, "to", to)
	}
}

// raised hears that a shard here is at a newer format version, and notes it in the directory: an older binary is then refused at
// Open, with a clear error. Before it is noted such a binary fails a moment later, when the shard's state refuses it.
func (n *Node) raised(version uint32) {
	n.life.tasks.spawn(func() { // stops when it is noted
		err := n.founding.store(func(h *home) bool {
			if h.id.Newest >= version {
				return false
			}
			h.id.Newest = version
			return true
		})
		if err != nil {
			n.fail(err)
		}
	})
}
