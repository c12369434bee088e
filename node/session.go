package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// session is this node's lease with one shard: what it holds there hangs on it. It is renewed in the background until it is
// lost, which the node knows by its own clock.
type session struct {
	g        *group
	ttl      time.Duration
	lease    owner.Lease
	hold     hold // token: the session's id
	lapse    lapse
	seqs     sequence
	unlogged atomic.Bool // it was closed here, and its end is not known to be in the log

	mu       sync.Mutex // guards the fields below
	ended    bool
	holds    map[*grant]struct{}
	attempts time.Duration // when the last renewal was sent
	renewed  time.Duration // when the last one that was answered was sent
}

func newSession(g *group, id Token, ttl, sent time.Duration) *session {
	s := &session{g: g, ttl: ttl, holds: map[*grant]struct{}{}, attempts: sent, renewed: sent}
	s.hold.init(g.n.env.Clock, id, &s.lease)
	s.lease.Start(owner.LeaseUntil(sent, ttl))
	s.lapse = lapse{clock: g.n.env.Clock, lease: &s.lease, length: ttl, f: func() { s.end(ErrLost) }}
	s.lapse.arm()
	return s
}

func (s *session) id() Token { return s.hold.token }

func (s *session) good() bool { return s.lease.Good(s.g.n.env.Clock.Now()) }

// renewedAt moves the deadline: a renewal sent then was accepted.
func (s *session) renewedAt(sent time.Duration) {
	if !s.lease.Extend(s.g.n.env.Clock.Now(), owner.LeaseUntil(sent, s.ttl)) {
		s.end(ErrLost)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = max(s.renewed, sent)
}

// When a session is to be renewed.
type renewWhen uint8

const (
	renewLater renewWhen = iota
	renewSoon            // if another with the same owner is renewed
	renewNow
)

// due says whether the session is to be renewed at now, and when it will be at the latest: a quarter of the TTL after the last renewal that
// was accepted, and then again and again, so that one failure costs little.
func (s *session) due(now time.Duration) (when renewWhen, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = max(s.renewed+s.ttl/4, s.attempts+s.ttl/20)
	switch {
	case s.ended:
		return renewLater, never
	case now >= at:
		return renewNow, at
	case now-s.renewed >= s.ttl/8 && now-s.attempts >= s.ttl/20:
		return renewSoon, at
	}
	return renewLater, at
}

// sending notes that a renewal is sent at now. It returns when the next one is due if that fails.
func (s *session) sending(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = now
	return max(s.renewed+s.ttl/4, now+s.ttl/20)
}

// end ends the session and what hangs on it, for ever.
func (s *session) end(cause error) {
	s.lease.End()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	holds := s.holds
	s.holds = nil
	s.mu.Unlock()
	s.lapse.stop()
	if s.hold.end(cause) && errors.Is(cause, ErrLost) {
		s.g.n.stats.sessions.lost.Add(1)
	}
	for g := range holds {
		s.g.listener.remove(g)
		g.end(cause)
	}
	s.g.sessions.forget(s)
}

// attach makes g, which was asked for in that round of the listener, end with the session. It says whether the session is still there.
func (s *session) attach(g *grant, round uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.g.listener.add(g, round) {
		s.holds[g] = struct{}{}
	}
	return true
}

func (s *session) detach(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, g)
	s.g.listener.remove(g)
}

// openSession makes a session. A nonce makes it safe to ask again; the deadline counts from before the first time it was asked.
func (g *group) openSession(ctx context.Context, guards []*fsmpb.Guard, ttl time.Duration) (*session, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	sent := g.n.env.Clock.Now()
	res, err := g.call(ctx, "open session", &fsmpb.Op{Guards: guards, Kind: &fsmpb.Op_OpenSession{OpenSession: &fsmpb.OpenSession{
		Node:        g.n.ID(),
		Incarnation: g.n.me.Incarnation,
		Ttl:         int64(ttl),
		Nonce:       nonce,
	}}})
	if err != nil {
		if errors.Is(err, ErrUnknown) {
			// A session that nobody knows of holds nothing and times out: for the caller nothing was done.
			err = fmt.Errorf("open session: %w: %w", ErrNoQuorum, context.Cause(ctx))
		}
		return nil, err
	}
	if _, err := checked("open session", res, nil); err != nil {
		return nil, err
	}
	s := newSession(g, Token(res.GetToken()), ttl, sent)
	if !s.good() {
		s.end(ErrLost)
		return nil, fmt.Errorf("open session: %w: it took longer than its TTL", ErrNoQuorum)
	}
	return s, nil
}

// A Session is a lease of this node with one shard, made by Shard.Session: what is held through the view Shard.In hangs on it and ends
// with it. It is renewed in the background until it is closed or lost. Its token was minted when it was made.
type Session struct {
	s *session

	turn chan struct{} // holds an element while it is being closed
}

var _ Hold = (*Session)(nil)

// Session makes a session with a TTL of 1 s to 1 h, zero for Config.SessionTTL, beside the implicit one that other calls use. Errors:
// ErrNoQuorum: not done, ErrFenced through a guarded view, ErrInvalid, ErrClosed. One that nobody knows of, because the answer was lost, times out.
func (s *Shard) Session(ctx context.Context, ttl time.Duration) (*Session, error) {
	if ttl == 0 {
		ttl = s.n.c.SessionTTL
	}
	if err := s.n.checkTTL(ttl); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	x, err := g.sessions.openFor(ctx, s.guards, ttl)
	if err != nil {
		return nil, err
	}
	return &Session{s: x, turn: make(chan struct{}, 1)}, nil
}

// checkTTL refuses a TTL out of bounds, or one that no election outlasts.
func (n *Node) checkTTL(ttl time.Duration) error {
	low := max(minSessionTTL, n.c.ElectionTimeout)
	if ttl < low || ttl > maxSessionTTL {
		return fmt.Errorf("%w: TTL = %v: give %v to %v", ErrInvalid, ttl, low, maxSessionTTL)
	}
	return nil
}

// Token is the session's token, 0 for a zero value.
func (x *Session) Token() Token {
	if x == nil || x.s == nil {
		return 0
	}
	return x.s.id()
}

// Check is nil while the session is trusted, else ErrLost or ErrNotHeld. See Hold.
func (x *Session) Check() error {
	if x == nil || x.s == nil {
		return ErrNotHeld
	}
	return x.s.hold.check()
}

// Done is closed when the session is lost or closed. See Hold.
func (x *Session) Done() <-chan struct{} {
	if x == nil || x.s == nil {
		return (&hold{}).channel()
	}
	return x.s.hold.channel()
}

// Context ends with parent or with the session. See Hold.
func (x *Session) Context(parent context.Context) context.Context {
	if x == nil || x.s == nil {
		return (&hold{}).context(parent)
	}
	return x.s.hold.context(parent)
}

// Close ends the session and all that hangs on it. ErrNotHeld: it was closed before, or is a zero value. ErrLost: it was lost before; nobody
// is asked. After any other error, such as ErrUnknown or ErrNoQuorum, it may live on: call it again.
func (x *Session) Close(ctx context.Context) error {
	if x == nil || x.s == nil {
		return fmt.Errorf("close session: %w", ErrNotHeld)
	}
	if errors.Is(x.s.hold.strict(), ErrLost) {
		return fmt.Errorf("close session: %w", ErrLost)
	}
	ctx, end, err := x.s.g.n.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	defer end()
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return fmt.Errorf("close session: %w", context.Cause(ctx))
	}
	if err := x.s.hold.strict(); err != nil && !(errors.Is(err, ErrNotHeld) && x.s.closing()) {
		return fmt.Errorf("close session: %w", err)
	}
	return x.s.close(ctx)
}

// close ends the session here, with all that hangs on it, and then in the log: the other way round the cluster could grant a lock to another
// while this node still trusts it. What the log does not hear of runs out; close may be called again.
func (s *session) close(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("close session: %w", context.Cause(ctx))
	}
	s.unlogged.Store(true)
	s.hold.release()
	s.end(ErrNotHeld)
	ctx, cancel := s.g.n.outliving(ctx)
	defer cancel()
	_, err := s.g.call(ctx, "close session", &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: []uint64{uint64(s.id())}}}})
	if err != nil {
		return err
	}
	s.unlogged.Store(false)
	return nil
}

// closing says whether close was called and the log may not have heard of it.
func (s *session) closing() bool { return s.unlogged.Load() }
