package node

import (
	"sync"

	"github.com/oarlock/oarlock/fsm"
)

// waitKey names a queued operation.
type waitKey struct {
	session fsm.Token
	seq     uint64
}

// waits are the callers that wait for a queued operation's result. Being woken means to look again.
type waits struct {
	mu sync.Mutex // guards m
	m  map[fsm.Token]map[uint64]*wait
}

type wait struct {
	ch      chan struct{}
	waiters int
}

func (w *waits) init() { w.m = map[fsm.Token]map[uint64]*wait{} }

// join returns a channel that is closed at the next wake of k, and what to call when no longer waiting for it.
func (w *waits) join(k waitKey) (woken <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.m[k.session]
	if of == nil {
		of = map[uint64]*wait{}
		w.m[k.session] = of
	}
	x := of[k.seq]
	if x == nil {
		x = &wait{ch: make(chan struct{})}
		of[k.seq] = x
	}
	x.waiters++
	return x.ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if x.waiters--; x.waiters == 0 && w.m[k.session][k.seq] == x {
			w.dropLocked(k)
		}
	}
}

func (w *waits) dropLocked(k waitKey) {
	of := w.m[k.session]
	if delete(of, k.seq); len(of) == 0 {
		delete(w.m, k.session)
	}
}

func (w *waits) wake(k waitKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.m[k.session][k.seq]; x != nil {
		close(x.ch)
		w.dropLocked(k)
	}
}

// wakeSession wakes all that wait for operations of the session.
func (w *waits) wakeSession(s fsm.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.m[s] {
		close(x.ch)
	}
	delete(w.m, s)
}
