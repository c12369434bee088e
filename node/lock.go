package node

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// maxNames is how many locks LockAll takes at once.
const maxNames = 64

// LockOptions are for everything that is acquired; nil is the default.
type LockOptions struct {
	// TTL, 1 s to 1 h and at least Config.ElectionTimeout, gives the grant a session of its own: that long it outlives a process that
	// dies. Zero: the node's session with the shard, or that of the view, beside which no TTL is allowed.
	TTL time.Duration
	// MaxHold, up to 366 days, ends the grant that long after it was made, at the latest by the holder's clock; the owner takes it back a good 1 % later,
	// if the holder has not given it back by then. Zero: no bound.
	// It is for locks whose holders may hang; only tokens keep out a holder that is paused.
	MaxHold time.Duration
	// Grace, up to 24 h, keeps the name closed that long after the holder's session expired or its process died, so that what it was doing may end. Zero: not at all. It
	// does not apply after a release.
	Grace time.Duration
	// Wait bounds the time in the queue; then the call fails with ErrHeld. Zero: only ctx bounds it.
	Wait time.Duration
	// Value is shown to others while the grant is held or waited for, at most 64 KiB.
	Value []byte
}

// A Lock is one grant of a lock, or of several at once. Make it with the methods of Shard and do not copy it. It is safe for concurrent use,
// and has the methods of Hold.
type Lock struct{ *grant }

var _ Hold = (*Lock)(nil)

// Lock acquires the lock name, 1 to 1024 bytes, and waits in a fair queue while another holds it. Locks are not re-entrant: a second
// Lock waits, also in the same goroutine, and shows as a waiter in Locks. It fails with the cause of ctx, which bounds the waiting, with ErrHeld
// after LockOptions.Wait, ErrLost when the session was lost in the queue, and the place with it, ErrNoQuorum, ErrFenced, ErrConflict if
// the name is used as a semaphore, ErrInvalid, ErrTooLarge or ErrClosed. The error names who held it, as far as is known. After an error the
// lock is not held: what may have been done is undone in the background, and the error wraps ErrUnknown.
func (s *Shard) Lock(ctx context.Context, name string, o *LockOptions) (*Lock, error) {
	return s.lock(ctx, o, &request{what: "lock", op: &fsmpb.Lock{Name: []byte(name)}})
}

// TryLock is Lock without waiting for a holder: ErrHeld says that there is one, or somebody who waits.
func (s *Shard) TryLock(ctx context.Context, name string, o *LockOptions) (*Lock, error) {
	return s.lock(ctx, o, &request{what: "lock", op: &fsmpb.Lock{Name: []byte(name), Try: true}, bounds: true})
}

// RLock acquires the lock name beside others that do the same, never beside a holder by Lock. It queues behind a Lock that waits, so writers
// are not starved. Each reader has a token of its own. Errors are those of Lock.
func (s *Shard) RLock(ctx context.Context, name string, o *LockOptions) (*Lock, error) {
	return s.lock(ctx, o, &request{what: "read lock", op: &fsmpb.Lock{Name: []byte(name), Mode: fsmpb.Lock_SHARED}})
}

// LockAll acquires up to 64 locks at once, all or none, under one token, and waits until it is first in all their queues. There is no deadlock
// whatever the order of the names: all queues have one order of arrival. Unlock gives all of them back. Errors are those of Lock.
func (s *Shard) LockAll(ctx context.Context, names []string, o *LockOptions) (*Lock, error) {
	if len(names) == 0 || len(names) > maxNames {
		return nil, fmt.Errorf("lock all: %w: %d names: give 1 to %d", ErrInvalid, len(names), maxNames)
	}
	op := &fsmpb.Lock{Name: []byte(names[0])}
	seen := map[string]bool{}
	for i, name := range names {
		if err := checkName("lock all", name); err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("lock all: %w: %q is named twice", ErrInvalid, name)
		}
		seen[name] = true
		if i > 0 {
			op.Names = append(op.Names, []byte(name))
		}
	}
	return s.lock(ctx, o, &request{what: "lock all", op: op})
}

func (s *Shard) lock(ctx context.Context, o *LockOptions, r *request) (*Lock, error) {
	o.apply(r)
	g, _, err := s.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Lock{g}, nil
}

// apply adds the options to a request.
func (o *LockOptions) apply(r *request) {
	if o == nil {
		return
	}
	r.ttl, r.wait, r.op.Value, r.op.MaxHold, r.op.Grace = o.TTL, o.Wait, bytes.Clone(o.Value), int64(o.MaxHold), int64(o.Grace)
}

// Revoked is closed when somebody asked the holder by RequestRevoke to give the lock up. It is for the holder to decide. For a zero value it is never
// closed.
func (l *Lock) Revoked() <-chan struct{} {
	if l.grant == nil {
		return nil
	}
	return l.revoked.ch
}

// Unlock releases the grant, and never another's: it is addressed by name and token. From the moment it is sent the lock is no longer
// trusted, whatever becomes of it, since the cluster may grant it to another before the answer is here. ErrNotHeld: it was released
// before, or is a zero value. ErrLost: it was lost before; nobody is asked. After any other error, such as ErrUnknown or the cause of
// ctx, others may still find it held: call it again. If nobody does, it is free when the session ends.
func (l *Lock) Unlock(ctx context.Context) error {
	if err := l.unlock(ctx); err != nil {
		return fmt.Errorf("unlock %q: %w", l.title(), err)
	}
	return nil
}
