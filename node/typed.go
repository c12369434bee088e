package node

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync/atomic"
)

// Typed reads and writes records as values of a type: node.Typed[Limits]{Shard: s}. Its zero codec is JSON. It may be copied and used concurrently.
type Typed[T any] struct {
	Shard *Shard
	// Encode and Decode turn values into bytes and back, nil: JSON.
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
	// Validate refuses values, nil: none. It is asked before each write and after each read.
	Validate func(T) error
}

func (t Typed[T]) encode(v T) ([]byte, error) {
	if t.Validate != nil {
		if err := t.Validate(v); err != nil {
			return nil, fmt.Errorf("%w: %w: %w", ErrInvalid, ErrBadValue, err)
		}
	}
	var b []byte
	var err error
	if t.Encode != nil {
		b, err = t.Encode(v)
	} else {
		b, err = json.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrInvalid, ErrBadValue, err)
	}
	return b, nil
}

func (t Typed[T]) decode(b []byte) (v T, err error) {
	if t.Decode != nil {
		v, err = t.Decode(b)
	} else {
		err = json.Unmarshal(b, &v)
	}
	if err == nil && t.Validate != nil {
		err = t.Validate(v)
	}
	if err != nil {
		var zero T
		return zero, fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	return v, nil
}

// Get returns the value of key and the record that has it. ErrBadValue: there is a record, and it is returned, but it is of no use. Other errors are those of Shard.Get.
func (t Typed[T]) Get(ctx context.Context, key string) (T, Record, error) {
	var zero T
	r, err := t.Shard.Get(ctx, key)
	if err != nil {
		return zero, Record{}, err
	}
	v, err := t.decode(r.Value)
	if err != nil {
		return zero, r, fmt.Errorf("get %q: %w", key, err)
	}
	return v, r, nil
}

// Put writes the value of key. A value that cannot be encoded, or that Validate refuses, is not written: ErrInvalid and ErrBadValue. Other errors are
// those of Shard.Put.
func (t Typed[T]) Put(ctx context.Context, key string, v T, o *PutOptions) (Revision, error) {
	b, err := t.encode(v)
	if err != nil {
		return 0, fmt.Errorf("put %q: %w", key, err)
	}
	return t.Shard.Put(ctx, key, b, o)
}

// CompareAndSwap writes the value of key if its record was last changed at revision old, see Shard.CompareAndSwap.
func (t Typed[T]) CompareAndSwap(ctx context.Context, key string, old Revision, v T, o *PutOptions) (Revision, error) {
	b, err := t.encode(v)
	if err != nil {
		return 0, fmt.Errorf("compare and swap %q: %w", key, err)
	}
	return t.Shard.CompareAndSwap(ctx, key, old, b, o)
}

// Update replaces the value of key by what fn makes of it, see Shard.Update; found says whether there is one. A present value of no use ends it with
// ErrBadValue and nothing done.
func (t Typed[T]) Update(ctx context.Context, key string, fn func(old T, found bool) (T, error)) (Revision, error) {
	return t.Shard.Update(ctx, key, func(old []byte) ([]byte, error) {
		var v T
		var err error
		if old != nil {
			if v, err = t.decode(old); err != nil {
				return nil, err
			}
		}
		if v, err = fn(v, old != nil); err != nil {
			return nil, err
		}
		return t.encode(v)
	})
}

// A TypedEvent is an Event with its value. Err says why Value is of no use, and is ErrBadValue then; after a delete and for marks Value is zero.
type TypedEvent[T any] struct {
	Event
	Value T
	Err   error
}

// Watch is Shard.Watch with values. A bad value does not end it.
func (t Typed[T]) Watch(ctx context.Context, prefix string, o *WatchOptions) iter.Seq2[TypedEvent[T], error] {
	return func(yield func(TypedEvent[T], error) bool) {
		for e, err := range t.Shard.Watch(ctx, prefix, o) {
			te := TypedEvent[T]{Event: e}
			if err == nil && e.Type == EventPut {
				te.Value, te.Err = t.decode(e.Record.Value)
			}
			if !yield(te, err) {
				return
			}
		}
	}
}

// Live is the value of one key, kept up to date in the background. A bad value does not replace the last good one. Its methods may be called from any
// goroutine, ask nobody and never block.
type Live[T any] struct {
	state   atomic.Pointer[liveState[T]]
	changed change
}

type liveState[T any] struct {
	value    T
	revision Revision
	err      error
}

// Live returns the value of key, kept up to date until ctx ends or the node stops: initial while there is no record, and after it was deleted. It returns
// once the present record was read, or with an error of Shard.List.
func (t Typed[T]) Live(ctx context.Context, key string, initial T) (*Live[T], error) {
	if err := checkKey("live", key); err != nil {
		return nil, err
	}
	l := &Live[T]{}
	l.changed.init()
	l.state.Store(&liveState[T]{value: initial})
	synced := make(chan error, 1)
	if !t.Shard.n.life.tasks.spawn(func() { // stops when ctx or the node ends
		for e, err := range t.Watch(ctx, key, &WatchOptions{Initial: true, Relist: true}) {
			switch {
			case err != nil:
				l.fail(err)
				first(synced, err)
			case e.Type == EventSynced:
				first(synced, nil)
			case e.Record.Key == key:
				l.hear(e, initial)
			}
		}
	}) {
		return nil, t.Shard.n.closedErr()
	}
	select {
	case err := <-synced:
		if err != nil {
			return nil, err
		}
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("live %q: %w", key, context.Cause(ctx))
	}
}

// first sends unless something was sent before and not taken.
func first(ch chan<- error, err error) {
	select {
	case ch <- err:
	default:
	}
}

func (l *Live[T]) hear(e TypedEvent[T], initial T) {
	next := &liveState[T]{value: e.Value, revision: e.Record.Mod}
	switch {
	case e.Type == EventDelete:
		next.value, next.revision = initial, 0
	case e.Err != nil:
		was := l.state.Load()
		next.value, next.revision, next.err = was.value, was.revision, e.Err
	}
	l.state.Store(next)
	l.changed.change()
}

func (l *Live[T]) fail(err error) {
	was := *l.state.Load()
	was.err = err
	l.state.Store(&was)
	l.changed.change()
}

// Load is the last good value.
func (l *Live[T]) Load() T { return l.state.Load().value }

// Revision is that of the record whose value Load returns, 0 for the initial value.
func (l *Live[T]) Revision() Revision { return l.state.Load().revision }

// Err is nil while Load is what the record says. ErrBadValue: the record was changed to a value of no use, and Load is the last good one; any other
// error has ended the updates.
func (l *Live[T]) Err() error { return l.state.Load().err }

// Changed is closed at the next change: take the channel, then Load, then wait.
func (l *Live[T]) Changed() <-chan struct{} { return l.changed.next() }
