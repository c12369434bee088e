package node

import (
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// renewer renews all sessions of a node: one message for each owner, with all sessions that are due there.
type renewer struct {
	n *Node

	mu       sync.Mutex // guards sessions
	sessions map[*session]struct{}
}

func newRenewer(n *Node) *renewer { return &renewer{n: n, sessions: map[*session]struct{}{}} }

func (r *renewer) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s] = struct{}{}
}

func (r *renewer) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// loop sends renewals as they fall due, until ctx ends. A message that is not answered holds up no other.
func (r *renewer) loop(ctx context.Context) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for to, due := range r.due() {
			r.n.life.tasks.spawn(func() { r.send(ctx, to, due) }) // stops when answered, or after an election timeout, or with ctx
		}
	}
}

// askedNode is the node that is asked to renew, and whether it may pass the request on.
type askedNode struct {
	node  string
	relay bool
}

// due are the sessions to renew now, by the node that is asked.
func (r *renewer) due() map[askedNode][]*session {
	r.mu.Lock()
	all := make([]*session, 0, len(r.sessions))
	for s := range r.sessions {
		all = append(all, s)
	}
	r.mu.Unlock()
	now := r.n.env.Clock.Now()
	var by map[askedNode][]*session
	for _, s := range all {
		if !s.due(now) {
			continue
		}
		if by == nil {
			by = map[askedNode][]*session{}
		}
		node, relay := s.g.target()
		to := askedNode{node, relay}
		by[to] = append(by[to], s)
	}
	return by
}

// send renews the sessions with the asked node. Their deadlines count from before it was sent.
func (r *renewer) send(ctx context.Context, to askedNode, due []*session) {
	ctx, cancel := context.WithTimeout(ctx, r.n.c.ElectionTimeout)
	defer cancel()
	sent := r.n.env.Clock.Now()
	refs := make([]*wire.SessionRef, len(due))
	for i, s := range due {
		refs[i] = &wire.SessionRef{Shard: uint32(s.g.id), Session: uint64(s.id())}
	}
	reply, err := r.n.renewAt(ctx, to.node, &wire.RenewRequest{Relay: to.relay, Sessions: refs})
	if err != nil || len(reply.GetAnswers()) != len(due) {
		r.n.stats.renewalsFailed.Add(uint64(len(due)))
		for _, s := range due {
			s.g.missed(to.node)
		}
		return
	}
	for i, s := range due {
		switch reply.GetAnswers()[i] {
		case wire.RenewReply_RENEWED:
			s.renewedAt(sent)
			s.g.served(to.node, to.relay)
		case wire.RenewReply_GONE:
			s.end(ErrLost)
		case wire.RenewReply_NOT_OWNER:
			s.g.missed(to.node)
			if i < len(reply.GetHints()) {
				s.g.setHint(reply.GetHints()[i])
			}
			r.n.stats.renewalsFailed.Add(1)
		default:
			r.n.stats.renewalsFailed.Add(1)
		}
	}
}

// renewAt asks a node, maybe this one, to renew sessions.
func (n *Node) renewAt(ctx context.Context, node string, q *wire.RenewRequest) (*wire.RenewReply, error) {
	if node == n.ID() {
		return n.renewHere(ctx, q), nil
	}
	q.Header = n.header()
	reply := &wire.RenewReply{}
	err := n.ask(ctx, node, wire.MethodRenew, q, reply)
	return reply, err
}

// renewHere renews sessions with the shards that this node owns, and passes the others on if it may.
func (n *Node) renewHere(ctx context.Context, q *wire.RenewRequest) *wire.RenewReply {
	refs := q.GetSessions()
	reply := &wire.RenewReply{Answers: make([]wire.RenewReply_Answer, len(refs)), Hints: make([]string, len(refs))}
	byShard, elsewhere := map[uint32][]int{}, map[string][]int{}
	for i, ref := range refs {
		g := n.group(int(ref.GetShard()))
		switch {
		case g == nil:
			reply.Answers[i] = wire.RenewReply_NOT_OWNER
		case g.owned() == nil:
			likely := g.likely()
			reply.Answers[i], reply.Hints[i] = wire.RenewReply_NOT_OWNER, likely
			if q.GetRelay() && likely != n.ID() {
				elsewhere[likely] = append(elsewhere[likely], i)
			}
		default:
			byShard[ref.GetShard()] = append(byShard[ref.GetShard()], i)
		}
	}
	var wg sync.WaitGroup
	for shard, at := range byShard {
		wg.Go(func() { n.renewOwned(ctx, n.group(int(shard)), refs, at, reply) }) // stops when its entry, if any, was applied or given up
	}
	for node, at := range elsewhere {
		wg.Go(func() { n.renewRelayed(ctx, node, refs, at, reply) }) // stops when answered, or with ctx
	}
	wg.Wait()
	return reply
}

// renewOwned renews the sessions refs[at...], all with g.
func (n *Node) renewOwned(ctx context.Context, g *group, refs []*wire.SessionRef, at []int, reply *wire.RenewReply) {
	o := g.owned()
	if o == nil {
		for _, i := range at {
			reply.Answers[i] = wire.RenewReply_NOT_OWNER
		}
		return
	}
	ids := make([]fsm.Token, len(at))
	for k, i := range at {
		ids[k] = fsm.Token(refs[i].GetSession())
	}
	for k, a := range o.renewal.renew(ctx, ids) {
		reply.Answers[at[k]] = a
	}
}

// renewRelayed asks node for the sessions refs[at...]. What fails stays unanswered by it.
func (n *Node) renewRelayed(ctx context.Context, node string, refs []*wire.SessionRef, at []int, reply *wire.RenewReply) {
	q := &wire.RenewRequest{Sessions: make([]*wire.SessionRef, len(at))}
	for k, i := range at {
		q.Sessions[k] = refs[i]
	}
	r, err := n.renewAt(ctx, node, q)
	if err != nil || len(r.GetAnswers()) != len(at) {
		return
	}
	for k, i := range at {
		reply.Answers[i] = r.GetAnswers()[k]
	}
}
