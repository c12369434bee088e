package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/env"
)

// grant is what locks, permits, leaderships and runs have in common: one grant of a name, or of several, under one token.
type grant struct {
	hold    hold
	s       *session
	kind    fsmpb.Lock_Kind
	name    string         // the first, if there are several
	guards  []*fsmpb.Guard // of the view that it was acquired through: what is written by it depends on them
	own     bool           // the session is the grant's own
	attempt uint64         // of a job
	since   time.Duration  // when it was known here
	revoked signal         // its holder was asked to give it up
	timer   env.Timer      // of MaxHold; nil: none

	released atomic.Bool   // it was done
	turn     chan struct{} // holds an element while a release is under way; guards the fields below
	sent     bool          // a release was sent, or is about to be
	tried    bool          // a release may have been done
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

// release gives the grant back by op, nil for the end of its own session, which the state machine does only while the token is current. From the moment it is sent the grant is no longer trusted, whatever becomes of it, since the cluster may grant
// it to another before the answer is here. It may be called again after an error. What was lost or released is said without asking anybody.
func (g *grant) release(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	switch {
	case g == nil:
		return nil, ErrNotHeld
	case errors.Is(g.hold.strict(), ErrLost):
		return nil, ErrLost
	case g.released.Load():
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
	_, err := g.release(ctx, g.unlockOp())
	return err
}

// unlockOp releases the grant; nil: the end of its own session does.
func (g *grant) unlockOp() *fsmpb.Op {
	if g.own {
		return nil
	}
	return &fsmpb.Op{Kind: &fsmpb.Op_Unlock{Unlock: &fsmpb.Unlock{Kind: g.kind, Name: []byte(g.name), Token: uint64(g.hold.token)}}}
}

// giveBack releases a grant that its holder cannot, or has failed to, release. It waits for that while ctx goes on, up to RequestTimeout; what it
// comes not to by then goes on in the background: else the name would stay taken for as long as this node lives.
func (g *grant) giveBack(ctx context.Context) {
	if ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, g.s.g.n.c.RequestTimeout)
		defer cancel()
		if g.unlock(ctx) == nil {
			return
		}
	}
	g.giveBackLater()
}

// giveBackLater releases the grant in the background, unless that is done.
func (g *grant) giveBackLater() {
	if g.released.Load() {
		return
	}
	g.hold.release()
	n := g.s.g.n
	n.life.tasks.spawn(func() { // stops when released, or with the session, which would release it too, or with the node
		ctx, cancel := g.s.background(g.own)
		defer cancel()
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
		case <-ctx.Done():
			return
		}
		if g.released.Load() {
			return
		}
		g.sent = true
		if _, err := g.send(ctx, g.unlockOp()); err != nil {
			n.log.Debug("grant was not given back", "shard", g.s.g.id, "token", uint64(g.hold.token), "err", err)
		}
	})
}

// background is for what is done under a session with nobody waiting: it ends with the session or the node. What closes the session, and so
// ends it here first, has its TTL: after that it is over in the log as well.
func (s *session) background(closes bool) (context.Context, context.CancelFunc) {
	if closes {
		return context.WithTimeout(s.g.n.life.ctx, s.ttl)
	}
	ctx, cancel := context.WithCancel(s.g.n.life.ctx)
	return s.hold.context(ctx), cancel
}

// leave ends the trust in the hold, before its release is sent for the first time. It says why there is nothing to release.
func (g *grant) leave() error {
	switch {
	case g.released.Load():
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

// send sends the release. A result that leaves the grant as it was, such as that of a guard, is returned as an error, but for NOT_FOUND.
func (g *grant) send(ctx context.Context, op *fsmpb.Op) (*fsmpb.Result, error) {
	if op == nil {
		if err := g.s.close(ctx); err != nil {
			return nil, err
		}
		g.over()
		return &fsmpb.Result{Status: fsmpb.Result_OK}, nil
	}
	res, err := g.s.call(ctx, "release", op.GetGuards(), op)
	switch {
	case errors.Is(err, errNoSession):
		return nil, ErrLost
	case err != nil:
		g.tried = g.tried || errors.Is(err, ErrUnknown)
		return nil, err
	case res.GetStatus() == fsmpb.Result_NOT_HELD && !g.tried:
		g.over()
		return nil, ErrLost // against its holder's will, who has not heard yet
	case res.GetStatus() == fsmpb.Result_OK, res.GetStatus() == fsmpb.Result_NOT_HELD:
		g.over()
	}
	return checked("release", res, nil)
}

// over notes that the state machine knows the grant no more.
func (g *grant) over() {
	g.released.Store(true)
	g.end(ErrNotHeld)
	g.s.detach(g)
	if g.own {
		n := g.s.g.n
		n.life.tasks.spawn(func() { _ = g.s.close(n.life.ctx) }) // stops when closed, or with the node; if it fails the session times out
	}
}

// end ends the hold here, if it has not ended.
func (g *grant) end(cause error) {
	if g.timer != nil {
		g.timer.Stop()
	}
	if errors.Is(cause, ErrNotHeld) {
		g.hold.release()
		return
	}
	g.lose(cause)
}

// lose ends the trust in the grant against its holder's will.
func (g *grant) lose(cause error) {
	if g.hold.end(cause) && errors.Is(cause, ErrLost) {
		g.s.g.n.stats.sessions.holdsLost.Add(1)
	}
}

// signal is a channel that is closed once.
type signal struct {
	once sync.Once
	ch   chan struct{}
}

func (s *signal) init() { s.ch = make(chan struct{}) }

func (s *signal) fire() { s.once.Do(func() { close(s.ch) }) }
