package node

import (
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// bounds are what an owner times beside sessions: grants with a MaxHold, from when their holders know of them, and names that stay
// closed for a Grace. A new owner counts anew: a bound is a least time, never a most.
type bounds struct {
	o *ownership

	mu sync.Mutex // guards m
	m  map[boundKey]bound
}

type boundKey struct {
	grace bool
	kind  fsmpb.Lock_Kind
	name  string
	token fsm.Token
}

type bound struct {
	at     time.Duration
	length time.Duration
}

func (b *bounds) init(o *ownership) { b.o, b.m = o, map[boundKey]bound{} }

// refresh looks at what is to be timed: at the ownership's start, and after something of it changed. What is known keeps its time.
func (b *bounds) refresh(m *fsm.Machine, now time.Duration) {
	wanted := map[boundKey]time.Duration{}
	for _, h := range m.TimedHolds() {
		if h.Started {
			wanted[boundKey{kind: h.Kind, name: h.Name, token: h.Token}] = h.MaxHold
		}
	}
	for _, g := range m.Graces() {
		wanted[boundKey{grace: true, kind: g.Kind, name: g.Name, token: g.Token}] = g.Length
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, length := range wanted {
		if _, ok := b.m[k]; !ok {
			b.m[k] = bound{at: now, length: length}
		}
	}
	for k := range b.m {
		if _, ok := wanted[k]; !ok {
			delete(b.m, k)
		}
	}
}

// due are the operations that end what has run out. They are asked for again until they show in the state.
func (b *bounds) due(now, late time.Duration) []*fsmpb.Op {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ops []*fsmpb.Op
	for k, x := range b.m {
		if now < x.at+owner.Stretch(x.length)+late {
			continue
		}
		if k.grace {
			ops = append(ops, &fsmpb.Op{Kind: &fsmpb.Op_EndGrace{EndGrace: &fsmpb.EndGrace{Kind: k.kind, Name: []byte(k.name), Token: uint64(k.token)}}})
		} else {
			ops = append(ops, &fsmpb.Op{Kind: &fsmpb.Op_Force{Force: &fsmpb.Force{Kind: k.kind, Name: []byte(k.name), Token: uint64(k.token)}}})
		}
	}
	return ops
}

// end ends what has run out.
func (b *bounds) end(ctx context.Context, now, late time.Duration) {
	for _, op := range b.due(now, late) {
		if _, err := b.o.submit(ctx, op); err != nil {
			return
		}
	}
}
