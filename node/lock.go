package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// LockOptions are for Lock and TryLock; nil is the default.
type LockOptions struct {
	// TTL, 1 s to 1 h, gives the lock a session of its own: that long it outlives a process that dies. Zero: the node's session with
	// the shard, or that of the view.
	TTL time.Duration
	// MaxHold and Grace are reserved. A lock that sets one fails with ErrInvalid.
	MaxHold, Grace time.Duration
	// Wait bounds the time in the queue; then Lock fails with ErrHeld. Zero: only ctx bounds it.
	Wait time.Duration
	// Value is shown to others while the lock is held or waited for, at most 64 KiB.
	Value []byte
}

// A Lock is one grant of a lock. Make it with Shard.Lock or Shard.TryLock and do not copy it. It is safe for concurrent use.
type Lock struct {
	hold     hold
	s        *session
	name     string
	own      bool          // the session is the lock's own
	turn     chan struct{} // holds an element while a release is under way
	sent     bool          // under turn: a release was sent, or is about to be
	tried    bool          // under turn: a release may have been done
	released bool          // under turn: it was done
}

var _ Hold = (*Lock)(nil)

// Lock acquires the lock name, 1 to 1024 bytes, and waits in a fair queue while another holds it. Locks are not re-entrant: a second
// Lock waits, also in the same goroutine. It fails with the cause of ctx, which bounds the waiting, with ErrHeld after
// LockOptions.Wait, ErrLost when the node's session was lost meanwhile, ErrNoQuorum, ErrFenced, ErrInvalid, ErrTooLarge or
// ErrClosed. After an error the lock is not held: what may have been done is undone in the background, and wraps ErrUnknown.
func (s *Shard) Lock(ctx context.Context, name string, o *LockOptions) (*Lock, error) {
	return s.lock(ctx, name, o, false)
}

// TryLock is Lock without waiting for a holder: ErrHeld says that there is one.
func (s *Shard) TryLock(ctx context.Context, name string, o *LockOptions) (*Lock, error) {
	return s.lock(ctx, name, o, true)
}

func (s *Shard) lock(ctx context.Context, name string, o *LockOptions, try bool) (*Lock, error) {
	if o == nil {
		o = &LockOptions{}
	}
	if err := o.check(name); err != nil {
		return nil, err
	}
	ctx, end, err := s.n.begin(ctx, try)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	for {
		x, implicit, err := s.lockSession(ctx, g, o)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
		a := &acquisition{x: x, name: name, wait: o.Wait, own: o.TTL > 0}
		op := &fsmpb.Op{Guards: s.guards, Kind: &fsmpb.Op_Lock{Lock: &fsmpb.Lock{Name: []byte(name), Try: try, Value: o.Value}}}
		l, err := a.run(ctx, op)
		switch {
		case !errors.Is(err, errNoSession):
			return l, err
		case !implicit:
			return nil, fmt.Errorf("lock %q: %w: the session ended", name, ErrLost)
		case ctx.Err() != nil:
			return nil, gaveUp(ctx, "lock", false)
		}
		// Nothing was done: again, with a new session.
	}
}

// lockSession is the session that a lock will hang on: one of its own if it has a TTL.
func (s *Shard) lockSession(ctx context.Context, g *group, o *LockOptions) (x *session, implicit bool, err error) {
	if o.TTL == 0 {
		return s.session(ctx, g)
	}
	if err := s.n.checkTTL(o.TTL); err != nil {
		return nil, false, err
	}
	x, err = g.sessions.openFor(ctx, o.TTL)
	return x, false, err
}

func (o *LockOptions) check(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("lock: %w: the name is empty", ErrInvalid)
	case len(name) > fsm.MaxName:
		return fmt.Errorf("lock: %w: the name has %d bytes, at most %d are allowed", ErrTooLarge, len(name), fsm.MaxName)
	case len(o.Value) > fsm.MaxLockValue:
		return fmt.Errorf("lock: %w: the value has %d bytes, at most %d are allowed", ErrTooLarge, len(o.Value), fsm.MaxLockValue)
	case o.MaxHold != 0 || o.Grace != 0:
		return fmt.Errorf("lock: %w: LockOptions.MaxHold and Grace are not supported yet", ErrInvalid)
	case o.Wait < 0:
		return fmt.Errorf("lock: %w: LockOptions.Wait = %v: give no negative time", ErrInvalid, o.Wait)
	}
	return nil
}

// acquisition is one Lock operation of a session, from its proposal to its grant or its undoing.
type acquisition struct {
	x    *session
	seq  uint64
	name string
	wait time.Duration
	own  bool // the session is the lock's own, and ends with it
}

func (a *acquisition) run(ctx context.Context, op *fsmpb.Op) (*Lock, error) {
	var low uint64
	a.seq, low = a.x.seqs.begin()
	op.Session, op.Seq, op.Low = uint64(a.x.id()), a.seq, low
	sctx := a.x.hold.context(ctx) // a lost session ends the waiting
	res, err := a.x.g.call(sctx, "lock", op)
	if err == nil && res.GetStatus() == fsmpb.Result_QUEUED {
		// The queue itself remembers the operation from here on: a long wait does not keep later results from being forgotten.
		a.x.seqs.finish(a.seq)
		res, err = a.queued(sctx)
	}
	switch {
	case errors.Is(err, errNoSession):
		a.x.end(ErrLost)
		return nil, err
	case err != nil:
		a.undo()
		if a.x.hold.check() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("lock %q: %w: the session ended", a.name, ErrLost)
		}
		return nil, fmt.Errorf("lock %q: %w", a.name, err)
	}
	return a.settle(res)
}

// settle turns the final result of the operation into a Lock or an error.
func (a *acquisition) settle(res *fsmpb.Result) (*Lock, error) {
	if res.GetStatus() != fsmpb.Result_OK {
		a.x.seqs.finish(a.seq)
		if a.own {
			a.undo()
		}
		if res.GetStatus() == fsmpb.Result_HELD {
			return nil, fmt.Errorf("lock %q: %w", a.name, ErrHeld)
		}
		_, err := checked("lock", res, nil)
		if err == nil {
			err = fmt.Errorf("lock %q: %w: %v", a.name, ErrLost, res.GetStatus())
		}
		return nil, err
	}
	l := &Lock{s: a.x, name: a.name, own: a.own, turn: make(chan struct{}, 1)}
	l.hold.init(a.x.g.n.env.Clock, Token(res.GetToken()), &a.x.lease)
	if !a.x.attach(&l.hold) || l.hold.strict() != nil {
		a.undo()
		return nil, fmt.Errorf("lock %q: %w: the session ended", a.name, ErrLost)
	}
	a.x.seqs.finish(a.seq)
	return l, nil
}

// errWaited ends the waiting after LockOptions.Wait.
var errWaited = errors.New("waited long enough")

// queued waits until the operation is granted.
func (a *acquisition) queued(ctx context.Context) (*fsmpb.Result, error) {
	if a.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.wait, errWaited)
		defer cancel()
	}
	for {
		var res *fsmpb.Result
		_, err := a.x.g.try(ctx, "wait for lock", func(actx context.Context, node string, relay bool) (wire.Outcome, string) {
			reply := a.x.g.awaitAt(ctx, node, relay, a.x.id(), a.seq)
			res = reply.GetResult()
			return reply.GetOutcome(), reply.GetHint()
		})
		switch {
		case errors.Is(err, errWaited):
			return nil, ErrHeld
		case err != nil:
			// It waited behind another's hold: that is no failure to reach an owner.
			return nil, context.Cause(ctx)
		case res.GetStatus() == fsmpb.Result_NO_SESSION:
			return nil, errNoSession
		case res.GetStatus() != fsmpb.Result_QUEUED:
			return res, nil
		}
	}
}

// undo cancels the operation in the background, until that is done or the session, which would undo it too, has ended. Its number
// stays open until then, so that its result is kept.
func (a *acquisition) undo() {
	n := a.x.g.n
	n.life.tasks.spawn(func() { // stops when undone, or with the session, or with the node
		ctx := a.x.hold.context(n.life.ctx)
		if a.own {
			_ = a.x.close(ctx) // if it fails the session times out
			return
		}
		op := &fsmpb.Op{Kind: &fsmpb.Op_CancelLock{CancelLock: &fsmpb.CancelLock{Seq: a.seq}}}
		if _, err := a.x.call(ctx, "cancel lock", nil, op); err == nil {
			a.x.seqs.finish(a.seq)
		}
	})
}

// awaitAt asks a node, maybe this one, for the result of a queued operation once it is final.
func (g *group) awaitAt(ctx context.Context, node string, relay bool, session Token, seq uint64) *wire.OpReply {
	if node == g.n.ID() {
		return g.awaitHere(ctx, relay, session, seq)
	}
	reply := &wire.OpReply{}
	q := &wire.AwaitRequest{Header: g.n.header(), Shard: uint32(g.id), Relay: relay, Session: uint64(session), Seq: seq}
	ctx, cancel := context.WithTimeout(ctx, 2*awaitTime)
	defer cancel()
	if err := g.n.ask(ctx, node, wire.MethodAwait, q, reply); err != nil {
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER}
	}
	return reply
}

// awaitTime bounds one answer to an await, so that the asker learns that the owner still is one.
const awaitTime = 5 * time.Second

// awaitHere waits for the result at the owner.
func (g *group) awaitHere(ctx context.Context, relay bool, session Token, seq uint64) *wire.OpReply {
	o := g.owned()
	if o == nil || o.leaving.Load() {
		likely := g.likely()
		if relay && likely != g.n.ID() {
			return g.awaitAt(ctx, likely, false, session, seq)
		}
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: likely}
	}
	woken, leave := o.waits.join(waitKey{session, seq})
	defer leave()
	res, ok := o.l.machine.Load().Result(session, seq)
	if ok && res.GetStatus() == fsmpb.Result_QUEUED {
		t := time.NewTimer(awaitTime)
		defer t.Stop()
		select {
		case <-woken:
		case <-t.C:
		case <-o.hold.channel():
			return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: g.likely()}
		case <-ctx.Done():
			return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER}
		}
		res, ok = o.l.machine.Load().Result(session, seq)
	}
	if !ok {
		res = &fsmpb.Result{Status: fsmpb.Result_CANCELLED}
		if _, lives := o.l.machine.Load().Session(session); !lives {
			res.Status = fsmpb.Result_NO_SESSION
		}
	}
	if !o.good() {
		return &wire.OpReply{Outcome: wire.Outcome_NOT_OWNER, Hint: g.likely()}
	}
	return &wire.OpReply{Outcome: wire.Outcome_DONE, Result: res}
}

// Token is the fencing token of the grant. Give it with each write to what the lock protects.
func (l *Lock) Token() Token { return l.hold.token }

// Check is nil while the lock is trusted, else ErrLost or ErrNotHeld. See Hold.
func (l *Lock) Check() error { return l.hold.check() }

// Done is closed when the lock is lost or released. See Hold.
func (l *Lock) Done() <-chan struct{} { return l.hold.channel() }

// Context ends with parent or with the lock. See Hold.
func (l *Lock) Context(parent context.Context) context.Context { return l.hold.context(parent) }

// Unlock releases the grant, and never another's: it is addressed by name and token. From the moment it is sent the lock is no longer
// trusted, whatever becomes of it, since the cluster may grant it to another before the answer is here. ErrNotHeld: it was released
// before, or is a zero value. ErrLost: it was lost before; nobody is asked. After any other error, such as ErrUnknown or the cause of
// ctx, others may still find it held: call it again. If nobody does, it is free when the session ends.
func (l *Lock) Unlock(ctx context.Context) error {
	if l.s == nil {
		return fmt.Errorf("unlock: %w", ErrNotHeld)
	}
	ctx, end, err := l.s.g.n.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("unlock %q: %w", l.name, err)
	}
	defer end()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return fmt.Errorf("unlock %q: %w", l.name, context.Cause(ctx))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unlock %q: %w", l.name, context.Cause(ctx))
	}
	if err := l.leave(); err != nil {
		return fmt.Errorf("unlock %q: %w", l.name, err)
	}
	if err := l.unlock(ctx); err != nil {
		return fmt.Errorf("unlock %q: %w", l.name, err)
	}
	return nil
}

// leave ends the trust in the hold, before its release is sent for the first time. It says why there is nothing to release.
func (l *Lock) leave() error {
	switch {
	case l.released:
		return ErrNotHeld
	case !l.sent:
		if err := l.hold.strict(); err != nil {
			return err
		}
		if !l.hold.release() {
			return ErrLost // meanwhile
		}
		l.sent = true
	case !l.own && !l.s.good():
		return ErrLost // with its session
	}
	return nil
}

// unlock sends the release.
func (l *Lock) unlock(ctx context.Context) error {
	if l.own {
		if err := l.s.close(ctx); err != nil {
			return err
		}
		l.released = true
		return nil
	}
	op := &fsmpb.Op{Kind: &fsmpb.Op_Unlock{Unlock: &fsmpb.Unlock{Name: []byte(l.name), Token: uint64(l.hold.token)}}}
	res, err := l.s.call(ctx, "unlock", nil, op)
	switch {
	case errors.Is(err, errNoSession):
		return ErrLost
	case err != nil:
		l.tried = l.tried || errors.Is(err, ErrUnknown)
		return err
	}
	l.released = true
	l.s.detach(&l.hold)
	if res.GetStatus() == fsmpb.Result_NOT_HELD && !l.tried {
		return ErrNotHeld
	}
	return nil
}
