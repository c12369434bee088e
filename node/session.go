package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// session is this node's lease with one shard: what it holds there hangs on it. It is renewed in the background until it is
// lost, which the node knows by its own clock.
type session struct {
	g     *group
	ttl   time.Duration
	lease owner.Lease
	hold  hold // token: the session's id
	lapse lapse
	seqs  sequence

	mu       sync.Mutex // guards the fields below
	ended    bool
	holds    map[*hold]struct{}
	attempts time.Duration // when the last renewal was sent
	renewed  time.Duration // when the last one that was answered was sent
}

func newSession(g *group, id Token, ttl, sent time.Duration) *session {
	s := &session{g: g, ttl: ttl, holds: map[*hold]struct{}{}, attempts: sent, renewed: sent}
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

// due says whether a renewal should be sent at now: a quarter of the TTL after the last that was accepted, and then again and
// again, so that one failure costs little.
func (s *session) due(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || now-s.renewed < s.ttl/4 || now-s.attempts < s.ttl/20 {
		return false
	}
	s.attempts = now
	return true
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
	s.hold.end(cause)
	for h := range holds {
		h.end(cause)
	}
	s.g.sessions.forget(s)
}

// attach makes h end with the session. It says whether the session is still there.
func (s *session) attach(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.holds[h] = struct{}{}
	return true
}

func (s *session) detach(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
}

// sequence numbers a session's operations and knows below which all are answered.
type sequence struct {
	mu   sync.Mutex // guards the fields below
	last uint64
	low  uint64              // all up to it are answered
	done map[uint64]struct{} // answered, above low
}

// begin takes the next number.
func (q *sequence) begin() (seq, low uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	return q.last, q.low
}

// finish notes that seq is answered and will not be sent again. It may be called more than once.
func (q *sequence) finish(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq <= q.low {
		return
	}
	if q.done == nil {
		q.done = map[uint64]struct{}{}
	}
	q.done[seq] = struct{}{}
	for {
		if _, ok := q.done[q.low+1]; !ok {
			return
		}
		q.low++
		delete(q.done, q.low)
	}
}

// sessions are a node's sessions with one shard: the implicit one, made when first needed.
type sessions struct {
	g *group

	mu      sync.Mutex // guards the fields below
	current *session
	opening *opening
	closed  error // set when no more are made
}

type opening struct {
	done chan struct{}
	s    *session
	err  error
}

func (m *sessions) init(g *group) { m.g = g }

// get returns the live session, opening one if there is none. Callers share an opening; each waits for its own ctx.
func (m *sessions) get(ctx context.Context) (*session, error) {
	for {
		s, err := m.getOnce(ctx)
		if !errors.Is(err, ErrNoQuorum) || ctx.Err() != nil {
			return s, err
		}
	}
}

func (m *sessions) getOnce(ctx context.Context) (*session, error) {
	m.mu.Lock()
	if m.closed != nil {
		defer m.mu.Unlock()
		return nil, m.closed
	}
	if s := m.current; s != nil && s.good() {
		m.mu.Unlock()
		return s, nil
	}
	o := m.opening
	if o == nil {
		o = &opening{done: make(chan struct{})}
		m.opening = o
		if !m.g.n.life.tasks.spawn(func() { m.open(o) }) { // stops when opened, or with the node
			m.opening = nil
			m.mu.Unlock()
			return nil, ErrClosed
		}
	}
	m.mu.Unlock()
	select {
	case <-o.done:
		return o.s, o.err
	case <-ctx.Done():
		return nil, gaveUp(ctx, "open session", false)
	}
}

// open makes a session. A nonce makes it safe to ask again; the deadline counts from before the first time it was asked.
func (m *sessions) open(o *opening) {
	ctx, cancel := context.WithTimeout(m.g.n.life.ctx, m.g.n.c.RequestTimeout)
	defer cancel()
	s, err := m.g.openSession(ctx, m.g.n.c.SessionTTL)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.closed != nil {
		s, err = nil, m.closed
	}
	o.s, o.err = s, err
	m.opening = nil
	if err == nil {
		m.current = s
		m.g.n.renewer.add(s)
	}
	close(o.done)
}

func (g *group) openSession(ctx context.Context, ttl time.Duration) (*session, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	sent := g.n.env.Clock.Now()
	res, err := g.call(ctx, "open session", &fsmpb.Op{Kind: &fsmpb.Op_OpenSession{OpenSession: &fsmpb.OpenSession{
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
	if res.GetStatus() != fsmpb.Result_OK {
		return nil, fmt.Errorf("open session: %w: %s", ErrInvalid, res.GetReason())
	}
	s := newSession(g, Token(res.GetToken()), ttl, sent)
	if !s.good() {
		s.end(ErrLost)
		return nil, fmt.Errorf("open session: %w: it took longer than its TTL", ErrNoQuorum)
	}
	return s, nil
}

// forget is called when a session ended.
func (m *sessions) forget(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == s {
		m.current = nil
	}
	m.g.n.renewer.remove(s)
}

// endAll ends the sessions here and makes no more.
func (m *sessions) endAll(cause error) {
	m.mu.Lock()
	if m.closed == nil {
		m.closed = ErrClosed
	}
	s := m.current
	m.mu.Unlock()
	if s != nil {
		s.end(cause)
	}
}

// live is the session if there is one.
func (m *sessions) live() *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}
