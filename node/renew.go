package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// maxRenewals is how many sessions one message renews.
const maxRenewals = 4096

// renewTick is how often a node looks for sessions to renew.
const renewTick = 50 * time.Millisecond

// renewer renews all sessions of a node: one message for each owner, with all its sessions there. When one of them is due, those that
// would be soon go along, so that sessions that were opened at different times come to be renewed together.
type renewer struct {
	n *Node

	mu       sync.Mutex // guards the fields below
	sessions map[*session]struct{}
	next     time.Duration // nothing is due before
}

func newRenewer(n *Node) *renewer {
	return &renewer{n: n, sessions: map[*session]struct{}{}, next: never}
}

func (r *renewer) add(s *session) {
	_, next := s.due(r.n.env.Clock.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s] = struct{}{}
	r.next = min(r.next, next)
}

func (r *renewer) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// loop sends renewals as they fall due, until ctx ends. A message that is not answered holds up no other.
func (r *renewer) loop(ctx context.Context) {
	t := time.NewTicker(renewTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for to, due := range r.due(r.n.env.Clock.Now()) {
			for some := range slices.Chunk(due, maxRenewals) {
				r.n.life.tasks.spawn(func() { r.send(ctx, to, some) }) // stops when answered, or after an election timeout, or with ctx
			}
		}
	}
}

// askedNode is the node that is asked to renew, and whether it may pass the request on.
type askedNode struct {
	node  string
	relay bool
}

// all are the sessions, none while nothing is due.
func (r *renewer) all(now time.Duration) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now < r.next {
		return nil
	}
	r.next = never // until it is known: add may lower it meanwhile
	all := make([]*session, 0, len(r.sessions))
	for s := range r.sessions {
		all = append(all, s)
	}
	return all
}

// due are the sessions to renew now, by the node that is asked.
func (r *renewer) due(now time.Duration) map[askedNode][]*session {
	all := r.all(now)
	if len(all) == 0 {
		return nil
	}
	targets := map[*group]askedNode{}
	by := map[askedNode][]*session{} // all that may go
	must := map[askedNode]bool{}     // one of them is due
	next := never
	for _, s := range all {
		when, at := s.due(now)
		if when != renewLater {
			to, ok := targets[s.g]
			if !ok {
				to.node, to.relay = s.g.target()
				targets[s.g] = to
			}
			by[to] = append(by[to], s)
			must[to] = must[to] || when == renewNow
		}
		if when != renewNow {
			next = min(next, at)
		}
	}
	for to, due := range by {
		if !must[to] {
			delete(by, to)
			continue
		}
		for _, s := range due {
			next = min(next, s.sending(now))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = min(r.next, max(next, now+1))
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
	c := &r.n.stats.sessions
	c.sent.Add(1)
	reply, err := r.n.renewAt(ctx, to.node, &wire.RenewRequest{Relay: to.relay, Sessions: refs})
	answers := reply.GetAnswers()
	if err != nil || len(answers) != len(due) {
		answers = slices.Repeat([]wire.RenewReply_Answer{wire.RenewReply_NOT_OWNER}, len(due))
	}
	served, missed := map[*group]bool{}, map[*group]string{} // by shard: whether, and the hint, "" if there is none
	for i, s := range due {
		switch answers[i] {
		case wire.RenewReply_RENEWED:
			s.renewedAt(sent)
			served[s.g] = true
			continue
		case wire.RenewReply_GONE:
			s.end(ErrLost)
			continue
		case wire.RenewReply_NOT_OWNER:
			missed[s.g] = ""
			if i < len(reply.GetHints()) {
				missed[s.g] = reply.GetHints()[i]
			}
		}
		c.failed.Add(1)
	}
	for g := range served {
		g.served(to.node, to.relay)
	}
	for g, hint := range missed {
		g.missed(to.node)
		g.setHint(hint)
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
