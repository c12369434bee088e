package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/rpc"
)

// complete asks the plan's nodes to store it. When all have, the cluster is founded. Every node that stored a plan asks, so
// the proposer may die.
func (f *founding) complete(ctx context.Context, plan *wire.Plan) *wire.Plan {
	type answer struct {
		node  string
		reply *wire.PlanReply
	}
	others := slices.DeleteFunc(slices.Clone(plan.GetNodes()), func(id string) bool { return id == f.n.ID() })
	answers := make(chan answer, len(others))
	actx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, id := range others {
		go func() { // stops when answered, or after a second; complete waits for it
			reply := &wire.PlanReply{}
			err := f.n.ask(actx, id, wire.MethodPlan, &wire.PlanRequest{Header: f.n.header(), Plan: plan}, reply)
			if err != nil || reply.GetNode() != id { // another node has got the address
				reply = nil
			}
			answers <- answer{id, reply}
		}()
	}
	stored, refused := 1, false
	var foundedElsewhere *wire.Plan
	for range others {
		switch a := <-answers; {
		case a.reply.GetFounded():
			foundedElsewhere = a.reply.GetPlan()
		case a.reply.GetStored():
			stored++
		case a.reply != nil:
			refused = true
			if a.reply.GetPlan() == nil {
				f.obstacle("a founder refuses the plan: give all the same Bootstrap, Shards and Replicas, and run like binaries", "peer", a.node)
			}
		}
	}
	switch {
	case foundedElsewhere != nil && checkPlan(foundedElsewhere) == nil:
		return f.adopt(foundedElsewhere)
	case refused:
		f.drop(plan)
		return nil
	case stored == len(plan.GetNodes()):
		return f.adopt(plan)
	}
	return nil
}

// drop forgets a plan that one of its nodes has durably refused: it can never be complete.
func (f *founding) drop(plan *wire.Plan) {
	err := f.store(func(h *home) bool {
		if h.id.Founded || h.plan.GetId() != plan.GetId() {
			return false
		}
		h.plan = nil
		h.id.Refused = append(h.id.Refused, plan.GetId())
		return true
	})
	if err != nil {
		f.n.fail(fmt.Errorf("drop founding plan: %w", err))
	}
	f.pause = min(max(2*f.pause, foundingTick), lastRefusal)
	f.next = time.Now().Add(f.pause)
}

// answer is the reply to a request to store a plan. What it says is on disk. heard says that this node knows of a cluster: then it stores none,
// and does not say that it never will.
func (f *founding) answer(q *wire.PlanRequest, heard bool) (*wire.PlanReply, error) {
	plan, held := q.GetPlan(), false
	if checkPlan(plan) != nil {
		return nil, invalidRequest(wire.MethodPlan)
	}
	reply := &wire.PlanReply{Node: f.n.ID()}
	err := f.store(func(h *home) bool {
		switch {
		case h.id.Founded:
			reply.Stored, reply.Founded, reply.Plan = h.plan.GetId() == plan.GetId(), true, h.plan
			return false
		case h.plan.GetId() == plan.GetId():
			reply.Stored = true
			return false
		case slices.Contains(h.id.Refused, plan.GetId()):
			reply.Plan = h.plan
			return false
		case h.plan == nil && f.acceptable(plan) && heard:
			held = true
			return false
		case h.plan == nil && f.acceptable(plan):
			h.plan, reply.Stored = plan, true
		default:
			h.id.Refused = append(h.id.Refused, plan.GetId())
			reply.Plan = h.plan
		}
		return true
	})
	if err != nil {
		f.n.fail(fmt.Errorf("store founding plan: %w", err))
		return nil, &rpc.RemoteError{Code: wire.CodeClosing, Text: "the plan cannot be stored"}
	}
	if held {
		return nil, &rpc.RemoteError{Code: wire.CodeClosing, Text: "a cluster is known here"}
	}
	return reply, nil
}

// describe is the plan of this node's cluster, if it belongs to one.
func (f *founding) describe(*wire.ClusterRequest) *wire.ClusterReply {
	plan, founded := f.current()
	if !founded {
		return &wire.ClusterReply{}
	}
	return &wire.ClusterReply{Plan: plan}
}
