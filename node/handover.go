package node

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// applyTime is what the other replicas get to apply the release before one of them is asked to lead: Raft's library skips a
// campaign while an entry is committed and not applied, and then refuses to be asked again for an election timeout.
const applyTime = 20 * time.Millisecond

// transferTries is how often Raft is asked to let another replica lead.
const transferTries = 2

// handOver gives the shard to the replica to, 0 for any. It ends the callbacks and waits for them up to the drain timeout, stops
// serving, ends the lease and only then proposes the release, whatever becomes of it; then it asks Raft to let the other lead.
// The error says that callbacks still ran: then there is no release, and the next owner waits for the lease.
func (o *ownership) handOver(ctx context.Context, to uint64) error {
	n := o.l.g.n
	o.hold.leave(ErrHandedOver)
	drained := n.owning.drain(ctx, o, n.c.DrainTimeout)
	o.ttls.record(ctx, o.ttls.ages(o.l.now()))
	o.leaving.Store(true)
	select {
	case <-o.done:
		return nil // it was lost meanwhile
	default:
	}
	select {
	case o.turn <- struct{}{}: // for ever: no entry is being committed, and none will be
	case <-o.done:
		return nil // it was lost meanwhile
	case <-ctx.Done():
		o.end(ErrHandedOver)
		return ctx.Err()
	}
	silences := o.renewal.silences()
	good := o.good()
	o.l.pause(o.l.now() + (transferTries+1)*n.c.ElectionTimeout)
	o.end(ErrHandedOver)
	var err error
	switch {
	case !drained:
		n.log.Error("callbacks outlived the drain timeout: the shard's lease must run out", "shard", o.l.g.id, "took", n.c.DrainTimeout)
		err = fmt.Errorf("hand over shard %d: callbacks still run", o.l.g.id)
	case good:
		o.release(ctx, silences)
		sleep(ctx, applyTime)
	}
	o.transfer(ctx, to)
	return err
}

// release proposes the end of the claim. Its outcome does not matter: the lease has ended.
func (o *ownership) release(ctx context.Context, silences []*fsmpb.Checkpoint_Silence) {
	ctx, cancel := context.WithTimeout(ctx, 2*o.l.g.n.c.ElectionTimeout)
	defer cancel()
	e := &fsmpb.Entry{Version: o.l.machine.Load().Version(), Attempt: o.l.g.n.attempt.Add(1), Body: &fsmpb.Entry_Batch{Batch: &fsmpb.Batch{
		Stamp: uint64(o.token),
		Ops:   []*fsmpb.Op{{Kind: &fsmpb.Op_Release{Release: &fsmpb.Release{Sessions: silences}}}},
	}}}
	if _, err := o.l.propose(ctx, e); err != nil {
		o.l.g.n.log.Debug("release not known to be applied", "shard", o.l.g.id, "err", err)
	}
}

// transfer asks Raft to let another replica lead, and waits until it does: a node that is closed before takes the request with
// it. Raft forgets a request after an election timeout; then it is asked again. It may come to nothing: then this node leads on
// and claims the shard again.
func (o *ownership) transfer(ctx context.Context, to uint64) {
	l := o.l
	if len(l.g.replicas) == 1 {
		return
	}
	for range transferTries {
		if to == 0 {
			l.giveAway(errHandsOver)
		} else if err := l.g.n.disk.host.Transfer(l.g.id, to); err != nil {
			l.g.n.log.Warn("cannot transfer leadership", "shard", l.g.id, "replica", to, "err", err)
		}
		if l.awaitGone(ctx, l.g.n.c.ElectionTimeout*11/10) || ctx.Err() != nil {
			return
		}
		l.g.n.log.Warn("leadership was not taken over", "shard", l.g.id, "replica", to)
	}
	l.resume()
}

// awaitGone waits up to d until this node no longer leads. It says whether that is so.
func (l *local) awaitGone(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for l.view().Self {
		select {
		case <-l.gone:
		case <-t.C:
			return !l.view().Self
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// handOverAll hands over everything this node owns, all at once.
func (n *Node) handOverAll(ctx context.Context) error {
	cl := n.cluster.Load()
	if cl == nil {
		return nil
	}
	began := time.Now()
	errs := make(chan error)
	count := 0
	for _, g := range cl.groups {
		if g.local != nil {
			g.local.pause(math.MaxInt64) // a shard that comes back, or comes now, is not claimed any more
		}
		if o := g.owned(); o != nil {
			count++
			go func() { errs <- o.handOver(ctx, n.successor(g)) }() // stops when handed over, within the drain timeout and ctx
		}
	}
	var first error
	for range count {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	n.log.Info("handed over", "count", count, "took", time.Since(began))
	return first
}
