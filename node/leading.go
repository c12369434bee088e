package node

import (
	"context"
	"sync"
	"time"
)

// leading are the callbacks of Lead and RunOnce that run. A shutdown ends their contexts and waits for them, so that what they are for is free
// only after they have returned.
type leading struct {
	idle chan struct{} // closed when closed and none runs

	mu     sync.Mutex // guards the fields below
	closed bool
	grants map[*grant]struct{}
}

func (x *leading) init() { x.idle, x.grants = make(chan struct{}), map[*grant]struct{}{} }

// enter admits a callback, unless the node shuts down. A callback that was admitted must leave, after its grant was given back.
func (x *leading) enter(g *grant) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	x.grants[g] = struct{}{}
	return true
}

func (x *leading) leave(g *grant) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.grants, g)
	if x.closed && len(x.grants) == 0 {
		close(x.idle)
	}
}

// over says that no more callbacks run.
func (x *leading) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed
}

// busy says whether a callback runs under a grant of the session: that must not be ended in the log, but runs out.
func (x *leading) busy(s *session) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for g := range x.grants {
		if g.s == s {
			return true
		}
	}
	return false
}

// close admits no more callbacks, and tells those that run to end, while what they hold is trusted still.
func (x *leading) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.closed = true
	if len(x.grants) == 0 {
		close(x.idle)
	}
	for g := range x.grants {
		g.hold.leave(ErrHandedOver)
	}
}

// drain closes x and waits for its callbacks, up to the timeout or until ctx ends.
func (x *leading) drain(ctx context.Context, timeout time.Duration) {
	x.close()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-x.idle:
	case <-t.C:
	case <-ctx.Done():
	}
}
