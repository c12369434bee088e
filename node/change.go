package node

import "sync"

// change tells any number of waiters that something changed: get the channel, look, then wait.
type change struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

func (c *change) init() { c.ch = make(chan struct{}) }

// next is closed at the next change.
func (c *change) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch
}

// change wakes all who wait. It never blocks.
func (c *change) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ch)
	c.ch = make(chan struct{})
}
