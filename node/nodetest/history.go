package nodetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oarlock/oarlock/node"
)

// maxHistory bounds the operations on one key or lock that a History keeps: what it costs to check them grows fast.
const maxHistory = 2000

// A History does operations, records them with their outcomes, and checks at the end of the test that they are linearizable:
// each seems to have happened at one instant between its call and its return. An operation whose outcome is unknown may have
// happened at any instant after its call, or never. At the end all keys are read once more, so a lost write is found. It also checks
// that calls return by their deadlines and that errors are of the documented kinds. It is safe for concurrent use.
type History struct {
	c     *Cluster
	began time.Time

	mu      sync.Mutex // guards the fields below
	records map[place][]porcupine.Operation
	locks   map[place][]porcupine.Operation
	held    map[holding]time.Time // since when, unless it was certainly ended by Unlock
	doubt   map[holding]bool      // an Unlock of it failed
	client  int
}

// holding is one grant of a lock.
type holding struct {
	at    place
	token node.Token
}

// endless is when an operation of unknown outcome returns.
const endless = int64(1) << 62

// place is a key or a lock of a shard.
type place struct {
	shard int
	name  string
}

// History returns a recorder for operations on this cluster.
func (c *Cluster) History() *History {
	h := &History{c: c, began: time.Now(), records: map[place][]porcupine.Operation{}, locks: map[place][]porcupine.Operation{},
		held: map[holding]time.Time{}, doubt: map[holding]bool{}}
	c.checks.add(h)
	return h
}

// Put is Shard.Put, recorded.
func (h *History) Put(ctx context.Context, s *node.Shard, key, value string) (node.Revision, error) {
	done := h.call(ctx, "put", s, key)
	rev, err := s.Put(ctx, key, []byte(value), nil)
	done(record{kind: opPut, value: value}, rev, err)
	return rev, err
}

// CompareAndSwap is Shard.CompareAndSwap, recorded.
func (h *History) CompareAndSwap(ctx context.Context, s *node.Shard, key string, old node.Revision, value string) (node.Revision, error) {
	done := h.call(ctx, "compare and swap", s, key)
	rev, err := s.CompareAndSwap(ctx, key, old, []byte(value), nil)
	done(record{kind: opSwap, old: old, value: value}, rev, err)
	return rev, err
}

// Delete is Shard.Delete, recorded.
func (h *History) Delete(ctx context.Context, s *node.Shard, key string) (node.Revision, error) {
	done := h.call(ctx, "delete", s, key)
	rev, err := s.Delete(ctx, key)
	done(record{kind: opDelete}, rev, err)
	return rev, err
}

// Get is Shard.Get, recorded.
func (h *History) Get(ctx context.Context, s *node.Shard, key string) (node.Record, error) {
	done := h.call(ctx, "get", s, key)
	r, err := s.Get(ctx, key)
	done(record{kind: opGet, found: err == nil, value: string(r.Value)}, r.Mod, err)
	return r, err
}

// call begins an operation. The returned function ends it.
func (h *History) call(ctx context.Context, what string, s *node.Shard, key string) func(r record, rev node.Revision, err error) {
	called, at := time.Now(), place{s.ID(), key}
	h.mu.Lock()
	h.client++
	client := h.client
	h.mu.Unlock()
	returned := h.c.checks.byDeadline(ctx, what)
	return func(r record, rev node.Revision, err error) {
		returned()
		r.rev = rev
		o := outcomeOf(err)
		switch {
		case o == strange:
			h.c.checks.failf("%s failed with an error of no documented kind: %v", what, err)
			return
		case errors.Is(err, node.ErrConflict):
			r.conflict = true
		case r.kind == opGet && errors.Is(err, node.ErrNotFound):
		case o == notDone || o == unknown && r.kind == opGet:
			return
		case o == unknown:
			r.unknown = true
		}
		h.add(h.records, at, h.operation(client, r, called, r.unknown))
	}
}

// operation is what a call came to. One of unknown outcome has no end.
func (h *History) operation(client int, in any, called time.Time, open bool) porcupine.Operation {
	op := porcupine.Operation{ClientId: client, Input: in, Call: int64(called.Sub(h.began)), Return: int64(time.Since(h.began))}
	if open {
		op.Return = endless
	}
	return op
}

func (h *History) add(to map[place][]porcupine.Operation, at place, op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(to[at]) < maxHistory {
		to[at] = append(to[at], op)
	}
}

// An outcome is what an error says of a write.
type outcome int

const (
	done outcome = iota
	notDone
	unknown
	strange // nothing that is documented
)

// outcomeOf sorts the errors of writes: not done, or unknown, and nothing else.
func outcomeOf(err error) outcome {
	if err == nil {
		return done
	}
	if errors.Is(err, node.ErrUnknown) {
		return unknown
	}
	for _, kind := range []error{
		node.ErrNoQuorum, node.ErrClosed, node.ErrConflict, node.ErrFenced, node.ErrHeld, node.ErrLost, node.ErrNotHeld,
		node.ErrNotFound, node.ErrTooLarge, node.ErrInvalid,
	} {
		if errors.Is(err, kind) {
			return notDone
		}
	}
	return strange
}

// finish reads all keys once more and checks the history.
func (h *History) finish() {
	h.mu.Lock()
	var at []place
	for p := range h.records {
		at = append(at, p)
	}
	h.mu.Unlock()
	for _, p := range at {
		h.readOnce(p)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endsLocked()
	for p, ops := range h.records {
		if !porcupine.CheckOperations(recordModel(), ops) {
			h.c.checks.failf("the history of key %q in shard %d is not linearizable: %s", p.name, p.shard, describe(ops))
		}
	}
	for p, ops := range h.locks {
		if !porcupine.CheckOperations(lockModel(), ops) {
			h.c.checks.failf("the history of lock %q in shard %d is not linearizable: %s", p.name, p.shard, describe(ops))
		}
	}
}

// readOnce reads a key through any node that can. Without a majority none can.
func (h *History) readOnce(p place) {
	for _, n := range h.c.Nodes() {
		ctx, cancel := context.WithTimeout(context.Background(), converge)
		_, err := h.Get(ctx, n.ShardAt(p.shard), p.name)
		cancel()
		if err == nil || errors.Is(err, node.ErrNotFound) {
			return
		}
	}
}
