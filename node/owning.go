package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// callbacks counts the callbacks that run under an ownership.
type callbacks struct {
	mu     sync.Mutex // guards the fields below
	n      int
	closed bool
	idle   chan struct{} // closed when closed and n is 0
}

func (c *callbacks) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

func (c *callbacks) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.closed && c.n == 0 {
		close(c.idle)
	}
}

// close admits no more callbacks and returns what is closed when none runs.
func (c *callbacks) close() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		if c.n == 0 {
			close(c.idle)
		}
	}
	return c.idle
}

// owning knows the running Own calls, and tells of changes of owners.
type owning struct {
	moved change // of any shard's owner

	mu    sync.Mutex // guards calls
	calls map[*ownCall]struct{}
}

func (w *owning) init() {
	w.calls = map[*ownCall]struct{}{}
	w.moved.init()
}

func (w *owning) register(c *ownCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[c] = struct{}{}
}

func (w *owning) unregister(c *ownCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c)
}

// all are the running Own calls.
func (w *owning) all() []*ownCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.calls))
}

// room says whether an Own runs, and for how many more shards there is room in all of them; -1: no limit.
func (w *owning) room() (runs bool, room int) {
	room = -1
	calls := w.all()
	for _, c := range calls {
		if n, limited := c.room(); limited && (room < 0 || n < room) {
			room = n
		}
	}
	if len(calls) == 0 {
		return false, 0
	}
	return true, room
}

// waits says whether the shard is owned here and has no place in some Own.
func (w *owning) waits(g *group) bool {
	return slices.ContainsFunc(w.all(), func(c *ownCall) bool { return c.waits(g) })
}

// gained hears of a new ownership of this node.
func (w *owning) gained(o *ownership) {
	w.changed()
	if o.l.g.id == 0 {
		return
	}
	for _, c := range w.all() {
		c.kick(o.l.g)
	}
}

// changed hears that a shard's owner may have changed. It may be called from an apply worker.
func (w *owning) changed() { w.moved.change() }

// next is closed at the next change.
func (w *owning) next() <-chan struct{} { return w.moved.next() }

// drain waits until no callback runs under o, and lets no more begin.
func (w *owning) drain(ctx context.Context, o *ownership, d time.Duration) bool {
	idle := o.calls.close()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
		return true
	default:
	}
	select {
	case <-idle:
		return true
	case <-t.C:
	case <-o.done:
	case <-ctx.Done():
	}
	return false
}
