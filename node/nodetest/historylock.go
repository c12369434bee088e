package nodetest

import (
	"context"
	"errors"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oarlock/oarlock/node"
)

// Lock is Shard.Lock, recorded. Give the lock back with Unlock, or leave it to be lost. The granted lock is also tracked, see Track.
func (h *History) Lock(ctx context.Context, s *node.Shard, name string, o *node.LockOptions) (*node.Lock, error) {
	return h.lock(ctx, s, name, func() (*node.Lock, error) { return s.Lock(ctx, name, o) })
}

// TryLock is Shard.TryLock, recorded as Lock is.
func (h *History) TryLock(ctx context.Context, s *node.Shard, name string, o *node.LockOptions) (*node.Lock, error) {
	return h.lock(ctx, s, name, func() (*node.Lock, error) { return s.TryLock(ctx, name, o) })
}

func (h *History) lock(ctx context.Context, s *node.Shard, name string, take func() (*node.Lock, error)) (*node.Lock, error) {
	called, at := time.Now(), place{s.ID(), name}
	returned := h.c.checks.byDeadline(ctx, "lock")
	l, err := take()
	returned()
	if err != nil {
		// Whatever was done is undone by the library, or by the end of the session.
		if outcomeOf(err) == strange && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))) {
			h.c.checks.failf("lock failed with an error of no documented kind: %v", err)
		}
		return nil, err
	}
	h.add(h.locks, at, h.operation(h.nextClient(), grant{token: l.Token()}, called, false))
	h.mu.Lock()
	h.held[holding{at, l.Token()}] = time.Now()
	h.mu.Unlock()
	h.c.Track(lockName(s.ID(), name), l)
	return l, nil
}

// Unlock is Lock.Unlock of a lock that Lock or TryLock returned, recorded.
func (h *History) Unlock(ctx context.Context, s *node.Shard, name string, l *node.Lock) error {
	called, at := time.Now(), place{s.ID(), name}
	returned := h.c.checks.byDeadline(ctx, "unlock")
	err := l.Unlock(ctx)
	returned()
	switch {
	case err == nil:
		h.add(h.locks, at, h.operation(h.nextClient(), grant{token: l.Token(), end: true}, called, false))
		h.mu.Lock()
		if x := (holding{at, l.Token()}); !h.doubt[x] {
			delete(h.held, x)
		}
		h.mu.Unlock()
	case outcomeOf(err) == strange && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))):
		h.c.checks.failf("unlock failed with an error of no documented kind: %v", err)
	default:
		h.mu.Lock()
		h.doubt[holding{at, l.Token()}] = true
		h.mu.Unlock()
	}
	return err
}

// endsLocked adds the ends of those holds that nobody is known to have ended: with their sessions, or by an Unlock of unknown outcome, at any
// instant after the grant, or never.
func (h *History) endsLocked() {
	for x, since := range h.held {
		op := porcupine.Operation{ClientId: h.client, Input: grant{token: x.token, end: true, maybe: true}, Call: int64(since.Sub(h.began)), Return: endless}
		h.client++
		h.locks[x.at] = append(h.locks[x.at], op)
	}
}

func (h *History) nextClient() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client++
	return h.client
}
