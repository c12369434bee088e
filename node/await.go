package node

import (
	"context"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// awaitAt asks a node, maybe this one, for the result of a queued operation once it is final.
func (g *group) awaitAt(ctx context.Context, node string, relay bool, session Token, seq uint64) *wire.OpReply {
	if node == g.n.ID() {
		return g.awaitHere(ctx, relay, session, seq)
	}
	reply := &wire.OpReply{}
	q := &wire.AwaitRequest{Header: g.n.header(), Shard: uint32(g.id), Relay: relay, Session: uint64(session), Seq: seq}
	ctx, cancel := context.WithTimeout(ctx, 2*awaitTime)
	defer cancel()
	if err := g.n.ask(ctx, node, wire.MethodAwait, q, reply); err != nil {
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER}
	}
	return reply
}

// awaitTime bounds one answer to an await, so that the asker learns that the owner still is one.
const awaitTime = 5 * time.Second

// awaitHere waits for the result at the owner.
func (g *group) awaitHere(ctx context.Context, relay bool, session Token, seq uint64) *wire.OpReply {
	o := g.owned()
	if o == nil || o.leaving.Load() {
		likely := g.likely()
		if relay && likely != g.n.ID() {
			return g.awaitAt(ctx, likely, false, session, seq)
		}
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: likely}
	}
	woken, leave := o.waits.join(waitKey{session, seq})
	defer leave()
	res, ok := o.l.machine.Load().Result(session, seq)
	if ok && res.GetStatus() == fsmpb.Result_QUEUED {
		t := time.NewTimer(awaitTime)
		defer t.Stop()
		select {
		case <-woken:
		case <-t.C:
		case <-o.hold.channel():
			return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: g.likely()}
		case <-ctx.Done():
			return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER}
		}
		res, ok = o.l.machine.Load().Result(session, seq)
	}
	if !ok {
		res = &fsmpb.Result{Status: fsmpb.Result_CANCELLED}
		if _, lives := o.l.machine.Load().Session(session); !lives {
			res.Status = fsmpb.Result_NO_SESSION
		}
	}
	if !o.good() {
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: g.likely()}
	}
	return &wire.OpReply{Outcome: wire.Outcome_DONE, Result: res}
}
