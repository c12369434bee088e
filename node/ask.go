package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// errNoSession: the operation's session has ended, and no attempt was applied before.
var errNoSession = errors.New("session has ended")

// awaitTime bounds how long an owner lets a question wait, so that the asker learns that the owner still is one.
const awaitTime = 5 * time.Second

// ask has the shard's owner answer q, wherever it is: it makes attempts until one is DONE or ctx ends. maybe says that an attempt before
// may have been executed, err is nil or the end of ctx. q must not be used by others meanwhile.
func (g *group) ask(ctx context.Context, what string, q *wire.OwnerRequest) (reply *wire.OwnerReply, maybe bool, err error) {
	q.Header, q.Shard = g.n.header(), uint32(g.id)
	limit := g.n.attemptTime()
	if patient(q) {
		limit = 2 * awaitTime
	}
	pause := time.Duration(0) // the first hint is followed at once
	for {
		node, relay := g.target()
		q.Relay = relay
		actx, cancel := context.WithTimeout(ctx, limit)
		reply = g.askAt(actx, node, q)
		cancel()
		switch reply.GetOutcome() {
		case wire.Outcome_DONE:
			g.served(node, relay)
			return reply, maybe, nil
		case wire.Outcome_UNKNOWN:
			maybe = true
		}
		if !unblamed(ctx, q) {
			g.missed(node)
		}
		if hint := reply.GetHint(); hint != "" && hint != node {
			g.setHint(hint)
			g.misses.Store(0)
		} else {
			pause = max(pause, firstPause)
		}
		g.n.stats.retries.Add(1)
		if !sleep(ctx, pause) {
			return nil, maybe, gaveUp(ctx, what, maybe)
		}
		pause = min(max(2*pause, firstPause), lastPause)
	}
}

// unblamed says that a question went without an answer because its asker has left, or has waited long enough for what takes its time.
func unblamed(ctx context.Context, q *wire.OwnerRequest) bool {
	return ctx.Err() != nil && (patient(q) || errors.Is(ctx.Err(), context.Canceled))
}

// patient says that the owner may take its time to answer.
func patient(q *wire.OwnerRequest) bool {
	switch q.GetAsk().(type) {
	case *wire.OwnerRequest_Await, *wire.OwnerRequest_Observe, *wire.OwnerRequest_Listen:
		return true
	}
	return false
}

// call has op committed by the shard's owner, wherever it is. Repeating is safe: op carries (session, seq), or does the same
// twice. Errors: ErrNoQuorum: not done; ErrUnknown; errNoSession: not done; ErrClosed.
func (g *group) call(ctx context.Context, what string, op *fsmpb.Op) (*fsmpb.Result, error) {
	reply, err := g.callFor(ctx, what, op)
	return reply.GetResult(), err
}

// callFor is call for the whole reply.
func (g *group) callFor(ctx context.Context, what string, op *fsmpb.Op) (*wire.OwnerReply, error) {
	reply, maybe, err := g.ask(ctx, what, &wire.OwnerRequest{Ask: &wire.OwnerRequest_Op{Op: op}})
	if err != nil {
		return nil, err
	}
	switch reply.GetResult().GetStatus() {
	case fsmpb.Result_NO_SESSION:
		if maybe {
			return nil, fmt.Errorf("%s: %w: the session ended before its outcome was known", what, ErrUnknown)
		}
		return nil, fmt.Errorf("%s: %w", what, errNoSession)
	case fsmpb.Result_BELOW:
		return nil, fmt.Errorf("%s: %w: its result is no longer kept", what, ErrUnknown)
	}
	return reply, nil
}

// askAt asks one node, maybe this one, that may own the shard.
func (g *group) askAt(ctx context.Context, node string, q *wire.OwnerRequest) *wire.OwnerReply {
	if node == g.n.ID() {
		return g.askHere(ctx, q)
	}
	reply := &wire.OwnerReply{}
	switch err := g.n.ask(ctx, node, wire.MethodOwner, q, reply); {
	case err == nil:
		return reply
	case q.GetOp() == nil || notDone(err):
		return notOwner("")
	default:
		return &wire.OwnerReply{Outcome: wire.Outcome_UNKNOWN}
	}
}

// askHere answers if this node owns the shard, else passes the question on if it may.
func (g *group) askHere(ctx context.Context, q *wire.OwnerRequest) *wire.OwnerReply {
	o := g.owned()
	if o == nil || o.leaving.Load() {
		likely := g.likely()
		if q.GetRelay() && likely != g.n.ID() {
			q.Header, q.Relay = g.n.header(), false
			return g.askAt(ctx, likely, q)
		}
		return notOwner(likely)
	}
	if q.GetOp() != nil {
		return o.commitOp(ctx, q.GetOp())
	}
	reply := &wire.OwnerReply{Outcome: wire.Outcome_DONE}
	if !o.answer(ctx, q, reply) || !o.good() { // what was read before the lease lapsed was nobody else's to change
		return notOwner(g.likely())
	}
	return reply
}

func notOwner(hint string) *wire.OwnerReply {
	return &wire.OwnerReply{Outcome: wire.Outcome_NOT_OWNER, Hint: hint}
}

// commitOp has an operation committed here.
func (o *ownership) commitOp(ctx context.Context, op *fsmpb.Op) *wire.OwnerReply {
	res, err := o.submit(ctx, op)
	switch {
	case err == nil:
		return &wire.OwnerReply{Outcome: wire.Outcome_DONE, Answer: &wire.OwnerReply_Result{Result: res}, Behind: o.behind(op, res)}
	case errors.Is(err, errMaybe):
		return &wire.OwnerReply{Outcome: wire.Outcome_UNKNOWN}
	default:
		return notOwner(o.l.g.likely())
	}
}

// behind is whom a Lock operation was refused for, or waits for: something to say in an error, and nothing to decide by.
func (o *ownership) behind(op *fsmpb.Op, res *fsmpb.Result) *wire.LockParty {
	k := op.GetLock()
	if k == nil || res.GetStatus() != fsmpb.Result_HELD && res.GetStatus() != fsmpb.Result_QUEUED {
		return nil
	}
	m := o.l.machine.Load()
	for _, name := range append([][]byte{k.GetName()}, k.GetNames()...) {
		if p := blocker(m.Holder(k.GetKind(), name)); p != nil {
			return p
		}
	}
	return nil
}

func blocker(c fsm.Claimant, ok bool) *wire.LockParty {
	if !ok {
		return nil
	}
	return &wire.LockParty{Node: c.Node, Token: uint64(c.Token)}
}

// answer puts the answer to a question into the reply. false: there is none.
func (o *ownership) answer(ctx context.Context, q *wire.OwnerRequest, reply *wire.OwnerReply) bool {
	switch ask := q.GetAsk().(type) {
	case *wire.OwnerRequest_Await:
		res := o.await(ctx, ask.Await)
		reply.Answer = &wire.OwnerReply_Result{Result: res}
		if res.GetStatus() == fsmpb.Result_QUEUED {
			reply.Behind = blocker(o.l.machine.Load().Blocker(fsm.Token(ask.Await.GetSession()), ask.Await.GetSeq()))
		}
		return res != nil
	case *wire.OwnerRequest_Read:
		res := readOf(o.l.machine.Load(), ask.Read)
		reply.Answer = &wire.OwnerReply_Read{Read: res}
		return res != nil
	case *wire.OwnerRequest_Identify:
		reply.Answer = &wire.OwnerReply_Identity{Identity: &wire.Identity{
			Node: o.l.g.n.ID(), Token: uint64(o.token), Revision: uint64(o.l.machine.Load().Revision()),
		}}
		return true
	case *wire.OwnerRequest_Observe:
		leader := o.leader(ctx, ask.Observe)
		reply.Answer = &wire.OwnerReply_Leader{Leader: leader}
		return leader != nil
	case *wire.OwnerRequest_Listen:
		notices := o.listen(ctx, ask.Listen)
		reply.Answer = &wire.OwnerReply_Notices{Notices: notices}
		return notices != nil
	case *wire.OwnerRequest_ListLocks:
		reply.Answer = &wire.OwnerReply_Locks{Locks: o.locks(ask.ListLocks)}
		return true
	case *wire.OwnerRequest_ListJobs:
		res := o.jobs(ask.ListJobs)
		reply.Answer = &wire.OwnerReply_Jobs{Jobs: res}
		return res != nil
	case *wire.OwnerRequest_ListRecords:
		page := listRecords(o.l.machine.Load(), ask.ListRecords)
		reply.Answer = &wire.OwnerReply_Records{Records: page}
		return page != nil
	case *wire.OwnerRequest_Former:
		page := formerOf(o.l.machine.Load(), ask.Former)
		reply.Answer = &wire.OwnerReply_Changes{Changes: page}
		return page != nil
	}
	return false
}
