package node

import (
	"context"
	"sync"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// maxEarly is how many notices a listener keeps of grants that are not here. Most are of grants that were given back meanwhile.
const maxEarly = 1024

// listener hears what the owner of a shard tells this node's holders. It runs while there is a grant.
//
// A notice may come before the answer that tells of its grant, so those of unknown grants are kept for a while. When some are forgotten, or were never
// heard because there was no listener or its owner is another now, a new round begins: a grant that was asked for in an earlier one may have ended
// already, and the owner is asked about it.
type listener struct {
	g *group

	mu      sync.Mutex // guards the fields below
	grants  map[Token]*grant
	early   map[Token]bool     // notices of grants that are not here yet: whether each has ended
	unsure  map[Token]bool     // grants of which a notice may have been missed
	rounds  uint64             // that were begun
	stop    context.CancelFunc // of the question under way, nil if there is none that may be cut short
	running bool
}

func (w *listener) init(g *group) {
	w.g, w.grants, w.early, w.unsure = g, map[Token]*grant{}, map[Token]bool{}, map[Token]bool{}
}

// round is to be taken before a grant is asked for.
func (w *listener) round() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rounds
}

// nextLocked begins a round.
func (w *listener) nextLocked() {
	w.rounds++
	clear(w.early)
}

// add begins to listen for a grant that was asked for in that round. It says whether it is held still: a notice of it may have come before.
func (w *listener) add(g *grant, round uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := g.hold.token
	w.grants[t] = g
	if ended, ok := w.early[t]; ok {
		delete(w.early, t)
		w.tellLocked(g, ended)
		if ended {
			return false
		}
	}
	if round != w.rounds {
		w.unsure[t] = true
		if w.stop != nil {
			w.stop()
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
	w.dropLocked(g.hold.token)
}

func (w *listener) dropLocked(t Token) {
	delete(w.grants, t)
	delete(w.unsure, t)
}

func (w *listener) tellLocked(g *grant, ended bool) {
	if !ended {
		g.revoked.fire()
		return
	}
	w.dropLocked(g.hold.token)
	g.end(ErrLost)
}

// begin begins a question, and returns its ctx and the grants that are here before it: only the unsure ones, if there are any. None: the listener stops.
func (w *listener) begin() (ctx context.Context, cancel context.CancelFunc, before map[Token]bool, unsure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.grants) == 0 {
		w.running = false
		w.nextLocked()
		return nil, nil, nil, false
	}
	ctx, cancel = context.WithCancel(w.g.n.life.ctx)
	if len(w.unsure) > 0 {
		before, w.unsure = w.unsure, map[Token]bool{}
		return ctx, cancel, before, true
	}
	w.stop = cancel
	before = make(map[Token]bool, len(w.grants))
	for t := range w.grants {
		before[t] = true
	}
	return ctx, cancel, before, false
}

// asked notes that no question is under way.
func (w *listener) asked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = nil
}

func (w *listener) run() {
	q := &wire.Listen{Node: w.g.n.ID()}
	for {
		ctx, cancel, before, unsure := w.begin()
		if ctx == nil {
			return
		}
		ask := q
		if unsure {
			ask = &wire.Listen{Node: q.Node} // of no cursor: for all that is held
		}
		answer, _, err := w.g.ask(ctx, "listen for notices", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Listen{Listen: ask}})
		w.asked()
		cancel()
		reply := answer.GetNotices()
		switch {
		case err != nil && w.g.n.life.ctx.Err() != nil:
			return // the node is closing
		case err != nil: // cut short
		case unsure:
			w.hear(before, &wire.Notices{Resync: true, Held: reply.GetHeld(), Revoke: reply.GetRevoke()}, false)
		default:
			q.Epoch, q.Cursor = reply.GetEpoch(), reply.GetCursor()
			w.hear(before, reply, reply.GetResync())
		}
	}
}

// hear takes in a reply to what was asked while the grants before were here; gap: notices were missed before it.
func (w *listener) hear(before map[Token]bool, reply *wire.Notices, gap bool) {
	for _, g := range w.told(before, reply, gap) {
		g.s.detach(g)
	}
}

// told tells the holders, and returns those whose grants have ended.
func (w *listener) told(before map[Token]bool, reply *wire.Notices, gap bool) (ended []*grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gap {
		w.nextLocked()
		for t := range w.grants {
			if !before[t] { // it came meanwhile, and the reply may be of before it was granted
				w.unsure[t] = true
			}
		}
	}
	for _, n := range reply.GetNotices() {
		if g := w.grants[Token(n.GetToken())]; g != nil {
			w.tellLocked(g, n.GetEnded())
			if n.GetEnded() {
				ended = append(ended, g)
			}
		} else {
			w.earlyLocked(Token(n.GetToken()), n.GetEnded())
		}
	}
	if reply.GetResync() {
		ended = append(ended, w.compareLocked(before, reply)...)
	}
	return ended
}

func (w *listener) earlyLocked(t Token, ended bool) {
	if len(w.early) >= maxEarly {
		w.nextLocked()
	}
	w.early[t] = ended
}

// compareLocked is told for all that is held.
func (w *listener) compareLocked(before map[Token]bool, reply *wire.Notices) (ended []*grant) {
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
