package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/rpc"
)

// Two processes with one identity run in copies of one directory. A copy has the votes and the promises of the original, and what it
// votes from then on the original does not know; one that was copied earlier has forgotten what the original promised since. So
// each node listens to one process of every other: a later start replaces an earlier one, of two at the same start the first
// that it heard stays. A process that is refused by anybody stops, and so does the younger one when the two meet: one directory is one
// process's at a time, so the one that runs longer is the original. Who goes on was refused by nobody. Before a node introduces
// itself to anybody it looks whether its former process still runs where it was last, since a copy of a running node would count as a
// later start.
//
// Who stopped must not come back by a restart, which would make it the later start: its directory is marked, until an operator decides.
//
// It is found when the processes or their peers meet. Two copies that are started in parts of a parted network are two voters until
// it heals; no peer could know better. What a node has heard it forgets when it ends.

const (
	challengeTime  = 2 * time.Second        // for the answers to one challenge
	formerTime     = 500 * time.Millisecond // for the answer of a former process
	challengePeers = 16                     // asked at most
)

// errCopied is the mark of a node that fails because its directory is one of two copies.
var errCopied = errors.New("its directory is one of two copies")

// refused hears that somebody listens to another process of this node.
func (n *Node) refused(by string) {
	n.fail(fmt.Errorf("%w: %s knows another process with this node's identity %s: %w: delete one and start that node with an empty directory; to keep "+
		"this one, delete the file %s in Config.Dir = %q", ErrDirLocked, by, n.ID(), errCopied, copiedFile, n.c.Dir))
}

// markCopied makes the directory refuse further starts, if the node failed for being a copy.
func (n *Node) markCopied() {
	if err := n.Err(); errors.Is(err, errCopied) {
		if err := n.home.replace(copiedFile, []byte(err.Error()+"\n")); err != nil {
			n.log.Error("cannot mark the directory, which must not be started again", "err", err)
		}
	}
}

// meetFormer looks whether the process that ran in the directory last, or in the original of it, still runs at another address: then this is a
// copy. It waits for the answer for formerTime at most.
func (n *Node) meetFormer(ctx context.Context) error {
	former := n.openAddresses()
	if former == "" || former == n.Addr() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, formerTime)
	defer cancel()
	n.meet(ctx, former)
	return n.Err()
}

// conflict hears from gossip of another process with this node's identity. Of one at the same start the others know which is to go on. One
// with a later start they listen to, so this one stops; but first the two meet, and then the other stops too, since it is the copy.
func (n *Node) conflict(other membership.Record) {
	n.life.tasks.spawn(func() { // stops after challengeTime, or when the node ends
		if other.Incarnation == n.me.Incarnation {
			n.challenge(other.Addr)
			return
		}
		ctx, cancel := context.WithTimeout(n.life.ctx, formerTime)
		defer cancel()
		n.meet(ctx, other.Addr)
		n.refused(other.Addr)
	})
}

// challenge asks the rival and other nodes whether they listen to this process. One that does not makes it stop.
func (n *Node) challenge(rival string) {
	ctx, cancel := context.WithTimeout(n.life.ctx, challengeTime)
	defer cancel()
	addrs := []string{rival}
	for _, m := range n.net.gossip.Members() {
		if m.State == membership.Alive && m.ID != n.ID() && len(addrs) <= challengePeers {
			addrs = append(addrs, m.Addr)
		}
	}
	var wg sync.WaitGroup
	for _, addr := range addrs {
		wg.Go(func() { n.meet(ctx, addr) }) // stops when answered, or with ctx
	}
	wg.Wait()
}

// meet introduces this process to whoever is at the address. If that knows another process of this node, this one stops.
func (n *Node) meet(ctx context.Context, addr string) {
	q := &wire.ClusterRequest{Header: n.header(), Age: uint64(n.age())}
	if err := n.askAddr(ctx, addr, wire.MethodCluster, q, &wire.ClusterReply{}); err != nil {
		n.log.Debug("nobody said whether this process is listened to", "addr", addr, "err", err)
	}
}

// age is the time since this process was opened.
func (n *Node) age() time.Duration { return n.env.Clock.Now() - n.net.opened }

// admit refuses requests of a process that is not the one to speak for its node. Of this node's own rivals it lets in only what settle
// judges.
func (n *Node) admit(method uint16, h *wire.Header) error {
	switch {
	case n.net.gossip.Admit(h.GetFrom(), h.GetIncarnation(), h.GetNonce()):
		return nil
	case h.GetFrom() == n.ID() && method == wire.MethodCluster:
		return nil
	case h.GetFrom() == n.ID():
		return &rpc.RemoteError{Code: wire.CodeClosing, Text: "this is not known yet to be the right process of the caller's node"}
	}
	return &rpc.RemoteError{Code: wire.CodeTwin, Text: fmt.Sprintf("another process of node %s is known here", h.GetFrom())}
}

// settle decides which of two processes goes on when this node's rival asks: the one that runs longer. The other is told to stop, or
// stops itself.
func (n *Node) settle(q *wire.ClusterRequest) error {
	h := q.GetHeader()
	if h.GetFrom() != n.ID() || h.GetNonce() == n.net.nonce {
		return nil
	}
	if time.Duration(q.GetAge()) > n.age() {
		n.refused("an older process")
		return &rpc.RemoteError{Code: wire.CodeClosing, Text: "the node is closing"}
	}
	return &rpc.RemoteError{Code: wire.CodeTwin, Text: fmt.Sprintf("node %s runs here", n.ID())}
}
