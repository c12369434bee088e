package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/raft"
)

// Bounds of one log entry of gathered operations.
const (
	maxGather      = 1024
	maxGatherBytes = 1 << 20
)

// What may become of an operation that was given to an owner.
var (
	errNotOwner = errors.New("not the owner")   // nothing was done
	errMaybe    = errors.New("may be done yet") // proposed, and not known what came of it
)

// queuedOp is an operation on its way into the log.
type queuedOp struct {
	op    *fsmpb.Op
	done  chan opOutcome // buffered: the commit loop never waits for a caller
	state *atomic.Int32
}

// States of a queued operation: it waits until it is taken for an entry or its caller gives it up, whichever comes first.
const (
	opWaits int32 = iota
	opTaken
	opAbandoned
)

type opOutcome struct {
	result *fsmpb.Result
	err    error
}

// opQueue gathers operations while a proposal is in flight.
type opQueue struct {
	mu     sync.Mutex // guards the fields below
	ops    []queuedOp // of callers
	many   []queuedOp // on many sessions each: some go into every entry, behind the others, so that they hold up no caller for long
	closed bool
	ready  chan struct{} // has an element while there may be operations
}

func (q *opQueue) init() { q.ready = make(chan struct{}, 1) }

func (q *opQueue) push(op queuedOp) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if concerns(op.op) > 0 {
		q.many = append(q.many, op)
	} else {
		q.ops = append(q.ops, op)
	}
	q.signalLocked()
	return true
}

func (q *opQueue) signalLocked() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes what fits one entry, at least one operation if there is any: of callers as many and as large as an entry may be, and then of
// those on many sessions until they are about maxMany.
func (q *opQueue) take() []queuedOp {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.ops) && n < maxGather {
		size += proto.Size(q.ops[n].op)
		if n > 0 && size > maxGatherBytes {
			break
		}
		n++
	}
	m, sessions := 0, 0
	for m < len(q.many) {
		sessions += concerns(q.many[m].op)
		if m > 0 && sessions > maxMany {
			break
		}
		m++
	}
	var taken []queuedOp
	taken, q.ops = takeFirst(taken, q.ops, n)
	taken, q.many = takeFirst(taken, q.many, m)
	if len(q.ops)+len(q.many) > 0 {
		q.signalLocked()
	}
	return taken
}

// takeFirst moves the first n that were not given up.
func takeFirst(taken, ops []queuedOp, n int) (took, rest []queuedOp) {
	for _, op := range ops[:n] {
		if op.state.CompareAndSwap(opWaits, opTaken) {
			taken = append(taken, op)
		}
	}
	if n == len(ops) {
		return taken, nil
	}
	return taken, ops[n:]
}

// concerns is the number of sessions that an owner renews, checkpoints or ends by op; 0 for a caller's operation.
func concerns(op *fsmpb.Op) int {
	switch k := op.GetKind().(type) {
	case *fsmpb.Op_Renew:
		return len(k.Renew.GetIds())
	case *fsmpb.Op_Checkpoint:
		return len(k.Checkpoint.GetSessions())
	case *fsmpb.Op_EndSessions:
		if k.EndSessions.GetExpired() {
			return len(k.EndSessions.GetIds())
		}
	}
	return 0
}

func (q *opQueue) close() []queuedOp {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	ops := append(q.ops, q.many...)
	q.ops, q.many = nil, nil
	return ops
}

// submit has op committed under this ownership. The error is errNotOwner: nothing was done and nothing will be; errMaybe: an
// entry with it was proposed; or wraps errMaybe and the cause of ctx.
func (o *ownership) submit(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	if o.leaving.Load() || !o.good() {
		return nil, errNotOwner
	}
	return o.enqueue(ctx, op)
}

// enqueue is submit whatever the lease.
func (o *ownership) enqueue(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	q := newQueued(op)
	if !o.queue.push(q) {
		return nil, errNotOwner
	}
	return q.wait(ctx)
}

func newQueued(op *fsmpb.Op) queuedOp {
	return queuedOp{op: op, done: make(chan opOutcome, 1), state: new(atomic.Int32)}
}

// wait returns what became of an operation that is in the queue. One that is given up before it was taken is not done.
func (q queuedOp) wait(ctx context.Context) (*fsmpb.Result, error) {
	select {
	case r := <-q.done:
		return r.result, r.err
	case <-ctx.Done():
		if q.state.CompareAndSwap(opWaits, opAbandoned) {
			return nil, errors.Join(errNotOwner, context.Cause(ctx))
		}
		return nil, errors.Join(errMaybe, context.Cause(ctx))
	}
}

// commitLoop proposes what was gathered, one entry at a time, until the ownership ends, which answers the rest.
func (o *ownership) commitLoop(ctx context.Context) {
	for {
		select {
		case <-o.queue.ready:
		case <-ctx.Done():
			return
		}
		select {
		case o.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ops := o.queue.take(); len(ops) > 0 {
			o.commit(ctx, ops)
		}
		<-o.turn
	}
}

// commit proposes one entry and answers its operations. The entry's application confirms the lease, from before this attempt was
// proposed, if this node still leads afterwards: a follower's proposal is forwarded and applied too.
func (o *ownership) commit(ctx context.Context, ops []queuedOp) {
	batch := &fsmpb.Batch{Stamp: uint64(o.token), At: o.l.g.n.env.Date().UnixNano(), Ops: make([]*fsmpb.Op, len(ops))}
	for i := range ops {
		batch.Ops[i] = ops[i].op
	}
	e := &fsmpb.Entry{Version: o.l.machine.Load().Version(), Attempt: o.l.g.n.attempt.Add(1), Body: &fsmpb.Entry_Batch{Batch: batch}}
	term := o.term.Load()
	proposed := o.l.now()
	a, err := o.l.propose(ctx, e)
	o.l.g.n.stats.operations.Add(uint64(len(ops)))
	switch {
	case err != nil:
		out := opOutcome{err: errMaybe}
		if errors.Is(err, raft.ErrNotAppended) {
			out.err = errNotOwner
			o.pause(ctx)
		}
		answer(ops, func(int) opOutcome { return out })
	case errors.Is(a.Err, fsm.ErrStale):
		// Another claim is in the log: this token is over.
		answer(ops, func(int) opOutcome { return opOutcome{err: errNotOwner} })
		o.end(ErrLost)
	case a.Err != nil || len(a.Results) != len(ops):
		o.l.g.n.log.Error("entry refused", "shard", o.l.g.id, "err", a.Err)
		answer(ops, func(int) opOutcome {
			return opOutcome{result: &fsmpb.Result{Status: fsmpb.Result_INVALID, Reason: "entry refused"}}
		})
	default:
		if owner.Leads(o.l.view(), term) && owner.Extends(o.term.Load(), term) {
			o.extend(proposed)
		}
		o.noteWaiters(ops, a.Results)
		answer(ops, func(i int) opOutcome { return opOutcome{result: a.Results[i]} })
	}
}

// noteWaiters remembers since when operations wait in queues.
func (o *ownership) noteWaiters(ops []queuedOp, results []*fsmpb.Result) {
	for i, r := range results {
		op := ops[i].op
		switch {
		case op.GetLock() != nil && r.GetStatus() == fsmpb.Result_QUEUED:
			o.ages.note(waitKey{fsm.Token(op.GetSession()), op.GetSeq()}, o.l.now())
		case op.GetCancelLock() != nil:
			o.ages.forget(waitKey{fsm.Token(op.GetSession()), op.GetCancelLock().GetSeq()})
		}
	}
}

// pause keeps a leader that drops proposals from being asked again at once.
func (o *ownership) pause(ctx context.Context) {
	t := time.NewTimer(raft.Tick(o.l.g.n.c.ElectionTimeout) / 2)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func answer(ops []queuedOp, f func(i int) opOutcome) {
	for i := range ops {
		ops[i].done <- f(i)
	}
}

// append has an entry committed and applied here.
func (l *local) append(ctx context.Context, entry []byte) error {
	n := l.g.n
	next := func() error { return n.disk.host.Propose(ctx, l.g.id, entry, 2*n.c.ElectionTimeout) }
	if n.env.Raft != nil {
		return n.env.Raft.Propose(ctx, l.g.id, entry, next)
	}
	return next()
}

// read has everything applied here that was committed before.
func (l *local) read(ctx context.Context) error {
	n := l.g.n
	next := func() error { return n.disk.host.Read(ctx, l.g.id, n.c.ElectionTimeout/2) }
	if n.env.Raft != nil {
		return n.env.Raft.Read(ctx, l.g.id, next)
	}
	return next()
}
