package node

import (
	"sync"
	"sync/atomic"
)

// tasks are the goroutines of a node. All of them stop when the node's root context ends; close waits for them.
type tasks struct {
	mu     sync.Mutex // guards closed, and that nothing is added after it
	closed bool
	wg     sync.WaitGroup
}

// spawn runs f in a goroutine of the node, unless the node is closing. It says whether it does.
func (t *tasks) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f) // stops when the node's root context ends
	return true
}

func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}

// gate counts the calls under way, so that what they use is closed only after the last one left.
type gate struct {
	state   atomic.Int64 // calls under way, plus gateClosed once closing
	once    sync.Once    // closes drained
	drained chan struct{}
}

const gateClosed = int64(1) << 62

func newGate() *gate { return &gate{drained: make(chan struct{})} }

// enter admits a call; a call that was admitted must leave.
func (g *gate) enter() bool {
	if g.state.Add(1) >= gateClosed {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.state.Add(-1) == gateClosed {
		g.signal()
	}
}

func (g *gate) signal() { g.once.Do(func() { close(g.drained) }) }

// close refuses further calls and waits for those under way.
func (g *gate) close() {
	for {
		s := g.state.Load()
		if s >= gateClosed {
			break
		}
		if g.state.CompareAndSwap(s, s+gateClosed) {
			if s == 0 {
				g.signal()
			}
			break
		}
	}
	<-g.drained
}
