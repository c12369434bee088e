package node

import (
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// maxNotices is how many notices an owner keeps for those who ask late; who asks even later compares all it holds.
const maxNotices = 4096

// notice is what an owner tells a holder of its own accord: a grant ended against its will, or it is asked to give it up.
type notice struct {
	node  string
	token fsm.Token
	ended bool
}

// notices are an owner's, numbered from 1 on.
type notices struct {
	changed change

	mu   sync.Mutex // guards the fields below
	base uint64     // the number before the first one kept
	list []notice
}

// add is called from an apply worker.
func (w *notices) add(n notice) {
	w.mu.Lock()
	if len(w.list) == maxNotices {
		w.base += maxNotices / 2
		w.list = append(w.list[:0], w.list[maxNotices/2:]...)
	}
	w.list = append(w.list, n)
	w.mu.Unlock()
	w.changed.change()
}

// since returns a node's notices after the cursor, and the cursor after them; false: some are no longer kept.
func (w *notices) since(cursor uint64, node string) (found []*wire.Notice, next uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next = w.base + uint64(len(w.list))
	if cursor < w.base || cursor > next {
		return nil, next, false
	}
	for _, n := range w.list[cursor-w.base:] {
		if n.node == node {
			found = append(found, &wire.Notice{Token: uint64(n.token), Ended: n.ended})
		}
	}
	return found, next, true
}

// listen answers, nil when ctx has ended, once there is a notice for the node, or after a while.
func (o *ownership) listen(ctx context.Context, q *wire.Listen) *wire.Notices {
	reply := &wire.Notices{Epoch: uint64(o.token)}
	t := time.NewTimer(awaitTime)
	defer t.Stop()
	for {
		changed := o.notices.changed.next()
		found, next, ok := o.notices.since(q.GetCursor(), q.GetNode())
		reply.Notices, reply.Cursor = found, next
		if !ok || q.GetEpoch() != uint64(o.token) {
			o.resync(q.GetNode(), reply)
		}
		if len(found) > 0 || reply.GetResync() {
			return reply
		}
		select {
		case <-changed:
			continue
		case <-t.C:
		case <-o.done:
		case <-ctx.Done():
			return nil
		}
		return reply
	}
}

// resync puts all grants of the node's sessions into the reply. They are read after its cursor, so nothing is missed.
func (o *ownership) resync(node string, reply *wire.Notices) {
	reply.Resync, reply.Notices = true, nil
	m := o.l.machine.Load()
	for _, id := range m.SessionsOf(node) {
		for _, l := range m.Holds(id) {
			for _, h := range l.Holders {
				reply.Held = append(reply.Held, uint64(h.Token))
				if h.RevokeRequested {
					reply.Revoke = append(reply.Revoke, uint64(h.Token))
				}
			}
		}
	}
}

// listener hears what the owner of a shard tells this node's holders. It runs while there is a grant.
type listener struct {
	g *group

	mu      sync.Mutex // guards the fields below
	grants  map[Token]*grant
	early   map[Token]bool // notices of grants that are not here yet: whether each has ended
	running bool
}

func (w *listener) init(g *group) {
	w.g, w.grants, w.early = g, map[Token]*grant{}, map[Token]bool{}
}

// add begins to listen for a grant. It says whether it is held still: a notice of it may have come before.
func (w *listener) add(g *grant) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants[g.hold.token] = g
	if ended, ok := w.early[g.hold.token]; ok {
		delete(w.early, g.hold.token)
		w.tellLocked(g, ended)
		if ended {
			return false
		}
	}
	if !w.running {
		w.running = w.g.n.life.tasks.spawn(w.run) // stops when there is no grant, or with the node
	}
	return true
}

func (w *listener) remove(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.grants, g.hold.token)
}

func (w *listener) tellLocked(g *grant, ended bool) {
	if !ended {
		g.revoked.fire()
		return
	}
	delete(w.grants, g.hold.token)
	g.end(ErrLost)
}

// known are the tokens of the grants here; none: the listener stops.
func (w *listener) known() map[Token]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.grants) == 0 {
		w.running = false
		clear(w.early)
		return nil
	}
	tokens := make(map[Token]bool, len(w.grants))
	for t := range w.grants {
		tokens[t] = true
	}
	return tokens
}

func (w *listener) run() {
	ctx := w.g.n.life.ctx
	q := &wire.Listen{Node: w.g.n.ID()}
	for {
		before := w.known()
		if before == nil {
			return
		}
		answer, _, err := w.g.ask(ctx, "listen for notices", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Listen{Listen: q}})
		if err != nil {
			return // the node is closing
		}
		reply := answer.GetNotices()
		q.Epoch, q.Cursor = reply.GetEpoch(), reply.GetCursor()
		w.hear(before, reply)
	}
}

// hear takes in a reply to what was asked while the grants before were here.
func (w *listener) hear(before map[Token]bool, reply *wire.Notices) {
	for _, g := range w.told(before, reply) {
		g.s.detach(g)
	}
}

// told tells the holders, and returns those whose grants have ended.
func (w *listener) told(before map[Token]bool, reply *wire.Notices) (ended []*grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range reply.GetNotices() {
		if g := w.grants[Token(n.GetToken())]; g != nil {
			w.tellLocked(g, n.GetEnded())
			if n.GetEnded() {
				ended = append(ended, g)
			}
		} else {
			w.early[Token(n.GetToken())] = n.GetEnded()
		}
	}
	if !reply.GetResync() {
		return ended
	}
	for _, t := range reply.GetHeld() {
		delete(before, Token(t))
	}
	for t := range before { // held then, and no longer in the state
		if g := w.grants[t]; g != nil {
			w.tellLocked(g, true)
			ended = append(ended, g)
		}
	}
	for _, t := range reply.GetRevoke() {
		if g := w.grants[Token(t)]; g != nil {
			w.tellLocked(g, false)
		}
	}
	return ended
}
