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

// request says what to acquire, and how.
type request struct {
	what   string // of errors: "lock"
	op     *fsmpb.Lock
	ttl    time.Duration // > 0: a session of its own
	wait   time.Duration // > 0: so long at most in the queue
	bounds bool          // the call is bounded by RequestTimeout if ctx has no deadline: it does not wait for a holder
}

func (r *request) name() string { return string(r.op.GetName()) }

// check refuses what is out of bounds before anything is asked.
func (r *request) check(s *Shard) error {
	if err := checkName(r.what, r.name()); err != nil {
		return err
	}
	switch maxHold, grace := time.Duration(r.op.GetMaxHold()), time.Duration(r.op.GetGrace()); {
	case len(r.op.GetValue()) > fsm.MaxLockValue:
		return fmt.Errorf("%s %q: %w: the value has %d bytes, at most %d are allowed", r.what, r.name(), ErrTooLarge, len(r.op.GetValue()), fsm.MaxLockValue)
	case r.wait < 0:
		return fmt.Errorf("%s %q: %w: Wait = %v: give 0 or more", r.what, r.name(), ErrInvalid, r.wait)
	case maxHold < 0 || maxHold > fsm.MaxHold:
		return fmt.Errorf("%s %q: %w: MaxHold = %v: give 0 to %v", r.what, r.name(), ErrInvalid, maxHold, fsm.MaxHold)
	case grace < 0 || grace > fsm.MaxGrace:
		return fmt.Errorf("%s %q: %w: Grace = %v: give 0 to %v", r.what, r.name(), ErrInvalid, grace, fsm.MaxGrace)
	case r.ttl != 0 && s.in != nil:
		return fmt.Errorf("%s %q: %w: TTL = %v in the view of a session, which has its own", r.what, r.name(), ErrInvalid, r.ttl)
	case r.ttl != 0:
		if err := s.n.checkTTL(r.ttl); err != nil {
			return fmt.Errorf("%s %q: %w", r.what, r.name(), err)
		}
	}
	return nil
}

// checkName refuses a name that is empty or too long.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: %w: the name is empty: give 1 to %d bytes", what, ErrInvalid, fsm.MaxName)
	case len(name) > fsm.MaxName:
		return fmt.Errorf("%s: %w: the name has %d bytes, at most %d are allowed", what, ErrTooLarge, len(name), fsm.MaxName)
	}
	return nil
}

// acquire gets a grant. A result that is neither OK nor an error of any request is returned as it is, without a grant.
func (s *Shard) acquire(ctx context.Context, r *request) (*grant, *fsmpb.Result, error) {
	if err := r.check(s); err != nil {
		return nil, nil, err
	}
	ctx, end, err := s.n.begin(ctx, r.bounds)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, nil, err
	}
	for {
		x, err := s.grantSession(ctx, g, r.ttl)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), err)
		}
		a := &acquisition{x: x, r: r, guards: s.guards, own: r.ttl > 0}
		gr, res, err := a.run(ctx, &fsmpb.Op{Guards: s.guards, Kind: &fsmpb.Op_Lock{Lock: r.op}})
		switch {
		case err == nil:
			return gr, res, nil
		case errors.Is(err, errAgain) && ctx.Err() == nil:
		case errors.Is(err, errAgain):
			return nil, nil, gaveUp(ctx, r.what, false)
		case !errors.Is(err, errNoSession):
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), err)
		case s.in != nil, s.n.life.ctx.Err() != nil:
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), s.n.sessionEnded())
		case ctx.Err() != nil:
			return nil, nil, gaveUp(ctx, r.what, false)
		}
		// Nothing was done: again, with a new session, or to hear what the job came to.
	}
}

// grantSession is the session that a grant will hang on: one of its own if it has a TTL.
func (s *Shard) grantSession(ctx context.Context, g *group, ttl time.Duration) (*session, error) {
	if ttl > 0 {
		return g.sessions.openFor(ctx, s.guards, ttl)
	}
	x, _, err := s.session(ctx, g)
	return x, err
}

// acquisition is one Lock operation of a session, from its proposal to its grant or its undoing.
type acquisition struct {
	x      *session
	r      *request
	guards []*fsmpb.Guard // of the view
	seq    uint64
	round  uint64          // of the listener, when it began
	own    bool            // the session is the grant's own, and ends with it
	behind *wire.LockParty // whom it waits for, as was last heard; nil: not known
}

func (a *acquisition) run(ctx context.Context, op *fsmpb.Op) (*grant, *fsmpb.Result, error) {
	var low uint64
	a.round = a.x.g.listener.round()
	a.seq, low = a.x.seqs.begin()
	op.Session, op.Seq, op.Low = uint64(a.x.id()), a.seq, low
	sctx := a.x.hold.context(ctx) // a lost session ends the waiting
	reply, err := a.x.g.callFor(sctx, a.r.what, op)
	res := reply.GetResult()
	a.behind = reply.GetBehind()
	queued := err == nil && res.GetStatus() == fsmpb.Result_QUEUED
	if queued {
		// The queue itself remembers the operation from here on: a long wait does not keep later results from being forgotten.
		a.x.seqs.finish(a.seq)
		res, err = a.queued(sctx)
	}
	switch {
	case errors.Is(err, errNoSession) && queued: // and lost its place with the session
		a.x.end(ErrLost)
		return nil, nil, a.x.g.n.sessionEnded()
	case errors.Is(err, errNoSession):
		a.x.end(ErrLost)
		return nil, nil, err
	case err != nil && !queued && ctx.Err() == nil && errors.Is(err, ErrLost):
		// It lost no place in a queue that it knew of, and what may have been done ends with the session.
		return nil, nil, errNoSession
	case err != nil:
		a.undo()
		if a.x.hold.check() != nil && (ctx.Err() == nil || errors.Is(err, ErrLost)) {
			return nil, nil, a.x.g.n.sessionEnded()
		}
		return nil, nil, err
	}
	return a.settle(res)
}

// settle turns the final result of the operation into a grant or an error.
func (a *acquisition) settle(res *fsmpb.Result) (*grant, *fsmpb.Result, error) {
	if res.GetStatus() != fsmpb.Result_OK {
		a.x.seqs.finish(a.seq)
		if a.own {
			a.undo()
		}
		return a.refused(res)
	}
	g := &grant{s: a.x, kind: a.r.op.GetKind(), name: a.r.name(), guards: a.guards, own: a.own, attempt: res.GetAttempt(), since: a.x.g.n.env.Clock.Now(), turn: make(chan struct{}, 1)}
	g.revoked.init()
	g.hold.init(a.x.g.n.env.Clock, Token(res.GetToken()), &a.x.lease)
	g.bound(time.Duration(a.r.op.GetMaxHold()))
	if !a.x.attach(g, a.round) || g.hold.strict() != nil {
		g.end(ErrLost)
		a.x.detach(g)
		a.undo()
		if a.x.good() {
			return nil, nil, fmt.Errorf("%w: MaxHold = %v was over at once", ErrLost, time.Duration(a.r.op.GetMaxHold()))
		}
		return nil, nil, a.x.g.n.sessionEnded()
	}
	a.x.seqs.finish(a.seq)
	g.started()
	return g, res, nil
}

// bound makes the hold end d from now at the latest; 0: not. The owner counts from when it hears of it, which is later; if it never does,
// the release that this node sends then is what frees the name.
func (g *grant) bound(d time.Duration) {
	if d > 0 {
		g.hold.until = g.hold.clock.Now() + d
		g.timer = g.hold.clock.AfterFunc(g.hold.until, func() {
			g.lose(ErrLost)
			g.giveBackLater()
		})
	}
}

// started tells the owner that this node's timer of MaxHold runs. Until it hears of it, it takes the grant from nobody.
func (g *grant) started() {
	if g.hold.until == 0 {
		return
	}
	n := g.s.g.n
	n.life.tasks.spawn(func() { // stops when the owner knows, or with the hold or the node
		ctx, cancel := context.WithCancel(n.life.ctx)
		defer cancel()
		ctx = g.hold.context(ctx)
		op := &fsmpb.Op{Kind: &fsmpb.Op_Started{Started: &fsmpb.Started{Kind: g.kind, Name: []byte(g.name), Token: uint64(g.hold.token)}}}
		if _, err := g.s.call(ctx, "acknowledge grant", nil, op); err != nil {
			n.log.Debug("grant was not acknowledged", "shard", g.s.g.id, "token", uint64(g.hold.token), "err", err)
		}
	})
}

func (a *acquisition) refused(res *fsmpb.Result) (*grant, *fsmpb.Result, error) {
	switch res.GetStatus() {
	case fsmpb.Result_HELD:
		return nil, nil, a.held()
	case fsmpb.Result_MISMATCH:
		return nil, nil, fmt.Errorf("%w: the name is in use with %d permits, 0 is a lock", ErrConflict, res.GetPermits())
	case fsmpb.Result_DONE:
		if res.GetTrimmed() { // a repeated answer, without the result
			return nil, nil, errAgain
		}
		return nil, res, nil
	case fsmpb.Result_CANCELLED:
		if a.r.op.GetKind() == fsmpb.Lock_JOB {
			return nil, nil, errAgain
		}
		return nil, nil, fmt.Errorf("%w: the grant was taken back", ErrLost)
	}
	if _, err := checked(a.r.what, res, nil); err != nil {
		return nil, nil, err
	}
	return nil, nil, fmt.Errorf("%w: unexpected result %v", ErrUnknown, res.GetStatus())
}

// errAgain: a job that was waited for was completed meanwhile, and its record says how.
var errAgain = errors.New("ask again")

// errWaited ends the waiting after LockOptions.Wait.
var errWaited = errors.New("waited long enough")

// queued waits until the operation is granted.
func (a *acquisition) queued(ctx context.Context) (*fsmpb.Result, error) {
	if a.r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.r.wait, errWaited)
		defer cancel()
	}
	for {
		reply, _, err := a.x.g.ask(ctx, "wait for "+a.r.what, &wire.OwnerRequest{Ask: &wire.OwnerRequest_Await{Await: &wire.Await{Session: uint64(a.x.id()), Seq: a.seq}}})
		res := reply.GetResult()
		switch {
		case errors.Is(err, errWaited):
			return nil, a.held()
		case err != nil:
			// It waited behind another's hold: that is no failure to reach an owner.
			return nil, a.waited(context.Cause(ctx))
		case res.GetStatus() == fsmpb.Result_NO_SESSION:
			return nil, errNoSession
		case res.GetStatus() != fsmpb.Result_QUEUED:
			return res, nil
		}
	}
}

// held is ErrHeld, with who holds it as far as is known.
func (a *acquisition) held() error {
	if a.behind == nil {
		return ErrHeld
	}
	return fmt.Errorf("%w: node %q with token %d", ErrHeld, a.x.g.n.memberOf(a.behind.GetNode()).Name, a.behind.GetToken())
}

// waited is the cause of why the waiting ended, with whom it was for as far as is known.
func (a *acquisition) waited(cause error) error {
	if a.behind == nil {
		return cause
	}
	return fmt.Errorf("waiting for node %q with token %d: %w", a.x.g.n.memberOf(a.behind.GetNode()).Name, a.behind.GetToken(), cause)
}

// undo cancels the operation in the background, until that is done or the session, which would undo it too, has ended. Its number
// stays open until then, so that its result is kept.
func (a *acquisition) undo() {
	a.x.g.n.life.tasks.spawn(func() { // stops when undone, or with the session, or with the node
		ctx, cancel := a.x.background(a.own)
		defer cancel()
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
