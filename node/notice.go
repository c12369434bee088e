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
