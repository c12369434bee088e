package node

import (
	"sync"
	"time"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// lapse calls f when a lease is about to run out: 5 % of its length before the deadline, which may have moved by then, so that
// the loss is heard before anything can be granted to another.
type lapse struct {
	clock  env.Clock
	lease  *owner.Lease
	length time.Duration
	f      func()

	mu      sync.Mutex // guards the fields below
	stopped bool
	timer   env.Timer
}

func (l *lapse) early() time.Duration { return l.lease.Deadline() - l.length/20 }

// arm sets the timer, unless it was stopped.
func (l *lapse) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.timer = l.clock.AfterFunc(l.early(), l.fire)
	}
}

func (l *lapse) fire() {
	if l.clock.Now() < l.early() {
		l.arm()
		return
	}
	l.mu.Lock()
	stopped := l.stopped
	l.mu.Unlock()
	if !stopped {
		l.f()
	}
}

// stop prevents the call, unless it is under way.
func (l *lapse) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
