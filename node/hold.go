package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// A Token is a fencing number: within a shard every grant of any kind carries a larger one than all before it, through restarts,
// failovers and moves. It is below 2^63, so it fits a signed column. Give it to the resource with each write, and let the
// resource refuse smaller ones than it has seen: only that keeps a paused holder out.
type Token = fsm.Token

// A Hold is something held in a shard: a *Lock, a *Session or an Ownership.
type Hold interface {
	// Token is the fencing token of this grant, 0 for a zero value.
	Token() Token
	// Check is nil while the hold is trusted, else ErrLost, or ErrNotHeld after a release. It asks nobody: one atomic load and one
	// clock read. Between a check and an effect outside oarlock there is always a window; only a token closes it.
	Check() error
	// Done is closed when the hold is lost, handed over or released, at the latest when the cluster may grant it to another, by
	// the local clock alone. Lost is final.
	Done() <-chan struct{}
	// Context returns a context that ends with parent or with the hold; then its cause is ErrLost, ErrHandedOver or ErrNotHeld.
	Context(parent context.Context) context.Context
}

// States of a hold.
const (
	holdNone     int32 = iota // the zero value: never held
	holdHeld                  // trusted while its lease is good
	holdLost                  // for ever
	holdReleased              // by its holder
)

// hold is the part that all holds share. The zero hold is not held.
type hold struct {
	token Token
	clock env.Clock
	lease *owner.Lease
	until time.Duration // not trusted from then on, whatever the lease; 0: no such bound. Set before the hold is shared
	state atomic.Int32

	mu    sync.Mutex // guards the fields below
	done  chan struct{}
	cause error // set when done is closed
	ctxs  map[*context.CancelCauseFunc]struct{}
}

func (h *hold) init(clock env.Clock, token Token, lease *owner.Lease) {
	h.clock, h.token, h.lease = clock, token, lease
	h.done = make(chan struct{})
	h.state.Store(holdHeld)
}

// check is what Hold.Check promises, by the fast clock.
func (h *hold) check() error {
	switch h.state.Load() {
	case holdHeld:
		if now := h.clock.Fast(); h.lease.Good(now) && (h.until == 0 || now < h.until) {
			return nil
		}
		return ErrLost
	case holdLost:
		return ErrLost
	default:
		return ErrNotHeld
	}
}

// strict is check by the strict clock.
func (h *hold) strict() error {
	if err := h.check(); err != nil {
		return err
	}
	if now := h.clock.Now(); !h.lease.Good(now) || h.until != 0 && now >= h.until {
		return ErrLost
	}
	return nil
}

// channel is what Hold.Done promises.
func (h *hold) channel() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil { // the zero value
		h.done = make(chan struct{})
		h.cause = ErrNotHeld
		close(h.done)
	}
	return h.done
}

// context is what Hold.Context promises.
func (h *hold) context(parent context.Context) context.Context {
	h.channel()
	ctx, cancel := context.WithCancelCause(parent)
	h.mu.Lock()
	cause := h.cause
	if cause == nil {
		if h.ctxs == nil {
			h.ctxs = map[*context.CancelCauseFunc]struct{}{}
		}
		h.ctxs[&cancel] = struct{}{}
	}
	h.mu.Unlock()
	if cause != nil {
		cancel(cause)
		return ctx
	}
	context.AfterFunc(ctx, func() { // runs once, when parent or the hold ends
		cancel(nil)
		h.mu.Lock()
		delete(h.ctxs, &cancel)
		h.mu.Unlock()
	})
	return ctx
}

// end makes the hold lost, unless it was released, and tells those who wait. It says whether it was held.
func (h *hold) end(cause error) bool {
	held := h.state.CompareAndSwap(holdHeld, holdLost)
	h.leave(cause)
	return held
}

// release makes the hold released. It says whether it was held, and so is the caller's to release.
func (h *hold) release() bool {
	ok := h.state.CompareAndSwap(holdHeld, holdReleased)
	h.leave(ErrNotHeld)
	return ok
}

// leave tells those who wait that the hold ends for the cause, while checks still go by the lease. Whoever sees Done closed finds the
// contexts ended.
func (h *hold) leave(cause error) {
	h.mu.Lock()
	if h.done == nil || h.cause != nil {
		h.mu.Unlock()
		return
	}
	h.cause = cause
	done, ctxs := h.done, h.ctxs
	h.ctxs = nil
	h.mu.Unlock()
	for c := range ctxs {
		(*c)(cause)
	}
	close(done)
}
