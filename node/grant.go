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

// grant is what locks, permits, leaderships and runs have in common: one grant of a name, or of several, under one token.
type grant struct {
	hold    hold
	s       *session
	kind    fsmpb.Lock_Kind
	name    string // the first, if there are several
	own     bool   // the session is the grant's own
	attempt uint64 // of a job

	turn     chan struct{} // holds an element while a release is under way; guards the fields below
	sent     bool          // a release was sent, or is about to be
	tried    bool          // a release may have been done
	released bool          // it was done
}

// Token is the fencing token of the grant, 0 for a zero value. Give it with each write to what the grant protects.
func (g *grant) Token() Token {
	if g == nil {
		return 0
	}
	return g.hold.token
}

// Check is nil while the grant is trusted, else ErrLost or ErrNotHeld. See Hold.
func (g *grant) Check() error {
	if g == nil {
		return ErrNotHeld
	}
	return g.hold.check()
}

// Done is closed when the grant is lost or released. See Hold.
func (g *grant) Done() <-chan struct{} {
	if g == nil {
		return (&hold{}).channel()
	}
	return g.hold.channel()
}

// Context ends with parent or with the grant. See Hold.
func (g *grant) Context(parent context.Context) context.Context {
	if g == nil {
		return (&hold{}).context(parent)
	}
	return g.hold.context(parent)
}

// title is the grant's name for errors.
func (g *grant) title() string {
	if g == nil {
		return ""
	}
	return g.name
}

// guard makes writes depend on the grant.
func (g *grant) guard() *fsmpb.Guard {
	kind := fsmpb.Guard_LOCK
	switch g.kind {
	case fsmpb.Lock_ELECTION:
		kind = fsmpb.Guard_ELECTION
	case fsmpb.Lock_JOB:
		kind = fsmpb.Guard_JOB
	}
	return &fsmpb.Guard{Kind: kind, Name: []byte(g.name), Token: uint64(g.hold.token)}
}

// release gives the grant back by op, which the state machine does only while the token is current. From the moment it is sent the
// grant is no longer trusted, whatever becomes of it, since the cluster may grant it to another before the answer is here. It may be
// called again after an error.
func (g *grant) release(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	if g == nil {
		return nil, ErrNotHeld
	}
	ctx, end, err := g.s.g.n.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	defer end()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := g.leave(); err != nil {
		return nil, err
	}
	ctx, cancel := g.s.g.n.outliving(ctx)
	defer cancel()
	return g.send(ctx, op)
}

// outliving is ctx, unless that ended because the hold that is being released ended: then it is bounded by RequestTimeout instead. A caller may
// well release under the hold's own context.
func (n *Node) outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), ErrNotHeld) {
		return ctx, func() {}
	}
	free, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.c.RequestTimeout)
	stop := context.AfterFunc(n.life.ctx, cancel) // runs once, unless stopped
	return free, func() {
		stop()
		cancel()
	}
}

// unlock is release by an Unlock.
func (g *grant) unlock(ctx context.Context) error {
	if g == nil {
		return ErrNotHeld
	}
	if g.own {
		_, err := g.release(ctx, nil)
		return err
	}
	_, err := g.release(ctx, &fsmpb.Op{Kind: &fsmpb.Op_Unlock{Unlock: &fsmpb.Unlock{Kind: g.kind, Name: []byte(g.name), Token: uint64(g.hold.token)}}})
	return err
}

// leave ends the trust in the hold, before its release is sent for the first time. It says why there is nothing to release.
func (g *grant) leave() error {
	switch {
	case g.released:
		return ErrNotHeld
	case !g.sent:
		if err := g.hold.strict(); err != nil {
			return err
		}
		if !g.hold.release() {
			return ErrLost // meanwhile
		}
		g.sent = true
	case !g.own && !g.s.good():
		return ErrLost // with its session
	}
	return nil
}

// send sends the release; nil: by the end of the grant's own session.
func (g *grant) send(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	if op == nil {
		if err := g.s.close(ctx); err != nil {
			return nil, err
		}
		g.released = true
		return &fsmpb.Result{Status: fsmpb.Result_OK}, nil
	}
	res, err := g.s.call(ctx, "release", nil, op)
	switch {
	case errors.Is(err, errNoSession):
		return nil, ErrLost
	case err != nil:
		g.tried = g.tried || errors.Is(err, ErrUnknown)
		return nil, err
	}
	g.released = true
	g.s.detach(g)
	if g.own {
		n := g.s.g.n
		n.life.tasks.spawn(func() { _ = g.s.close(n.life.ctx) }) // stops when closed, or with the node; if it fails the session times out
	}
	if res.GetStatus() == fsmpb.Result_NOT_HELD && !g.tried {
		return nil, ErrNotHeld
	}
	return res, nil
}

// request says what to acquire, and how.
type request struct {
	what   string // of errors: "lock"
	op     *fsmpb.Lock
	ttl    time.Duration // > 0: a session of its own
	wait   time.Duration // > 0: so long at most in the queue
	bounds bool          // the call is bounded by RequestTimeout if ctx has no deadline: it does not wait for a holder
}

func (r *request) name() string { return string(r.op.GetName()) }

func (r *request) check() error {
	for _, name := range append([][]byte{r.op.GetName()}, r.op.GetNames()...) {
		switch {
		case len(name) == 0:
			return fmt.Errorf("%s: %w: the name is empty", r.what, ErrInvalid)
		case len(name) > fsm.MaxName:
			return fmt.Errorf("%s: %w: the name has %d bytes, at most %d are allowed", r.what, ErrTooLarge, len(name), fsm.MaxName)
		}
	}
	switch {
	case len(r.op.GetValue()) > fsm.MaxLockValue:
		return fmt.Errorf("%s: %w: the value has %d bytes, at most %d are allowed", r.what, ErrTooLarge, len(r.op.GetValue()), fsm.MaxLockValue)
	case r.wait < 0 || r.op.GetMaxHold() < 0 || r.op.GetGrace() < 0:
		return fmt.Errorf("%s: %w: Wait, MaxHold and Grace: give no negative time", r.what, ErrInvalid)
	}
	return nil
}

// acquire gets a grant. A result that is neither OK nor an error of any request is returned as it is, without a grant.
func (s *Shard) acquire(ctx context.Context, r *request) (*grant, *fsmpb.Result, error) {
	if err := r.check(); err != nil {
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
		x, implicit, err := s.grantSession(ctx, g, r.ttl)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), err)
		}
		a := &acquisition{x: x, r: r, own: r.ttl > 0}
		gr, res, err := a.run(ctx, &fsmpb.Op{Guards: s.guards, Kind: &fsmpb.Op_Lock{Lock: r.op}})
		switch {
		case err == nil:
			return gr, res, nil
		case errors.Is(err, errAgain) && ctx.Err() == nil:
		case !errors.Is(err, errNoSession):
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), err)
		case !implicit:
			return nil, nil, fmt.Errorf("%s %q: %w", r.what, r.name(), s.n.sessionEnded())
		case ctx.Err() != nil:
			return nil, nil, gaveUp(ctx, r.what, false)
		}
		// Nothing was done: again, with a new session, or to hear what the job came to.
	}
}

// grantSession is the session that a grant will hang on: one of its own if it has a TTL.
func (s *Shard) grantSession(ctx context.Context, g *group, ttl time.Duration) (x *session, implicit bool, err error) {
	if ttl == 0 {
		return s.session(ctx, g)
	}
	if err := s.n.checkTTL(ttl); err != nil {
		return nil, false, err
	}
	x, err = g.sessions.openFor(ctx, ttl)
	return x, false, err
}

// acquisition is one Lock operation of a session, from its proposal to its grant or its undoing.
type acquisition struct {
	x   *session
	r   *request
	seq uint64
	own bool // the session is the grant's own, and ends with it
}

func (a *acquisition) run(ctx context.Context, op *fsmpb.Op) (*grant, *fsmpb.Result, error) {
	var low uint64
	a.seq, low = a.x.seqs.begin()
	op.Session, op.Seq, op.Low = uint64(a.x.id()), a.seq, low
	sctx := a.x.hold.context(ctx) // a lost session ends the waiting
	res, err := a.x.g.call(sctx, a.r.what, op)
	if err == nil && res.GetStatus() == fsmpb.Result_QUEUED {
		// The queue itself remembers the operation from here on: a long wait does not keep later results from being forgotten.
		a.x.seqs.finish(a.seq)
		res, err = a.queued(sctx)
	}
	switch {
	case errors.Is(err, errNoSession):
		a.x.end(ErrLost)
		return nil, nil, err
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
	g := &grant{s: a.x, kind: a.r.op.GetKind(), name: a.r.name(), own: a.own, attempt: res.GetAttempt(), turn: make(chan struct{}, 1)}
	g.hold.init(a.x.g.n.env.Clock, Token(res.GetToken()), &a.x.lease)
	if !a.x.attach(g) || g.hold.strict() != nil {
		a.undo()
		return nil, nil, a.x.g.n.sessionEnded()
	}
	a.x.seqs.finish(a.seq)
	return g, res, nil
}

func (a *acquisition) refused(res *fsmpb.Result) (*grant, *fsmpb.Result, error) {
	switch res.GetStatus() {
	case fsmpb.Result_HELD:
		return nil, nil, ErrHeld
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
		var res *fsmpb.Result
		_, err := a.x.g.try(ctx, "wait for "+a.r.what, func(actx context.Context, node string, relay bool) (wire.Outcome, string) {
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
		ctx, cancel := context.WithTimeout(n.life.ctx, a.x.ttl)
		defer cancel()
		if a.own {
			_ = a.x.close(ctx) // not under the hold's context: to close it ends that. If it fails the session times out
			return
		}
		ctx = a.x.hold.context(ctx)
		op := &fsmpb.Op{Kind: &fsmpb.Op_CancelLock{CancelLock: &fsmpb.CancelLock{Seq: a.seq}}}
		if _, err := a.x.call(ctx, "cancel lock", nil, op); err == nil {
			a.x.seqs.finish(a.seq)
		}
	})
}

// again notes that the state machine kept the grant although its release was sent.
func (g *grant) again() {
	g.turn <- struct{}{}
	g.released = false
	<-g.turn
}
