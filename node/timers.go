package node

import (
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// maxEnds is how many bounds an owner ends at once: what ends one may grant to many.
const maxEnds = 64

// bounds are what an owner times beside sessions: grants with a MaxHold, from when their holders know of them, and names that stay
// closed for a Grace. A new owner counts anew: a bound is a least time, never a most.
type bounds struct {
	o *ownership

	mu     sync.Mutex // guards the fields below
	m      map[boundKey]*bound
	agenda agenda[*bound]
}

type boundKey struct {
	grace bool
	kind  fsmpb.Lock_Kind
	name  string
	token fsm.Token
}

type bound struct {
	timing
	boundKey
	from   time.Duration
	length time.Duration
}

func (b *bounds) init(o *ownership) { b.o, b.m = o, map[boundKey]*bound{} }

// adopt begins to time what the claim found.
func (b *bounds) adopt(m *fsm.Machine, now time.Duration) {
	for _, h := range m.TimedHolds() {
		if h.Started {
			b.begin(boundKey{kind: h.Kind, name: h.Name, token: h.Token}, h.MaxHold, now)
		}
	}
	for _, g := range m.Graces() {
		b.begin(boundKey{grace: true, kind: g.Kind, name: g.Name, token: g.Token}, g.Length, now)
	}
}

// observe hears what changed.
func (b *bounds) observe(e fsm.Event, now time.Duration) {
	k := boundKey{grace: e.Kind == fsm.Closed || e.Kind == fsm.Reopened, kind: e.Of, name: string(e.Name), token: e.Token}
	switch e.Kind {
	case fsm.HoldStarted, fsm.Closed:
		b.begin(k, e.Length, now)
	case fsm.Freed, fsm.Reopened:
		b.over(k)
	}
}

func (b *bounds) begin(k boundKey, length, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m[k] == nil && length > 0 {
		x := &bound{boundKey: k, from: now, length: length}
		b.m[k] = x
		b.agenda.put(x, x.end(0))
	}
}

func (b *bounds) over(k boundKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.m[k]; x != nil {
		b.agenda.remove(x)
		delete(b.m, k)
	}
}

// end is when the bound has run out on every clock, at an owner that was late by so much.
func (x *bound) end(late time.Duration) time.Duration { return x.from + owner.Stretch(x.length) + late }

// next is when there is something to look at, never if there is nothing.
func (b *bounds) next() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.agenda.next()
}

// due are operations that end what has run out. They are asked for again until they show in the state.
func (b *bounds) due(now, late time.Duration) (ops []*fsmpb.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range maxLook {
		x, ok := b.agenda.due(now)
		if !ok {
			break
		}
		if end := x.end(late); now < end {
			b.agenda.put(x, end)
			continue
		}
		b.agenda.put(x, now+expiryTick)
		if ops = append(ops, x.op()); len(ops) == maxEnds {
			break
		}
	}
	return ops
}

func (x *bound) op() *fsmpb.Op {
	if x.grace {
		return &fsmpb.Op{Kind: &fsmpb.Op_EndGrace{EndGrace: &fsmpb.EndGrace{Kind: x.kind, Name: []byte(x.name), Token: uint64(x.token)}}}
	}
	return &fsmpb.Op{Kind: &fsmpb.Op_Force{Force: &fsmpb.Force{Kind: x.kind, Name: []byte(x.name), Token: uint64(x.token)}}}
}

// end ends what has run out, up to maxEnds of it.
func (b *bounds) end(ctx context.Context, now, late time.Duration) {
	ops := b.due(now, late)
	if b.o.leaving.Load() || !b.o.good() {
		return
	}
	var queued []queuedOp
	for _, op := range ops {
		if q := newQueued(op); b.o.queue.push(q) {
			queued = append(queued, q)
		}
	}
	for _, q := range queued {
		if _, err := q.wait(ctx); err != nil {
			return
		}
	}
}
