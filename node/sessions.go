package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// sessions are a node's sessions with one shard: the implicit one, made when first needed, and those that were asked for.
type sessions struct {
	g *group

	mu      sync.Mutex // guards the fields below
	all     map[*session]struct{}
	current *session // the implicit one
	opening *opening
	closed  error // set when no more are made
}

type opening struct {
	done chan struct{}
	s    *session
	err  error
}

func (m *sessions) init(g *group) { m.g, m.all = g, map[*session]struct{}{} }

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
	s, err := m.openFor(ctx, nil, m.g.n.c.SessionTTL)
	m.mu.Lock()
	defer m.mu.Unlock()
	o.s, o.err = s, err
	m.opening = nil
	if err == nil {
		m.current = s
	}
	close(o.done)
}

// openFor makes a session with that TTL, if the guards allow it, and has it renewed.
func (m *sessions) openFor(ctx context.Context, guards []*fsmpb.Guard, ttl time.Duration) (*session, error) {
	s, err := m.g.openSession(ctx, guards, ttl)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	closed := m.closed
	if closed == nil {
		m.all[s] = struct{}{}
	}
	m.mu.Unlock()
	if closed != nil {
		s.end(ErrLost)
		return nil, closed
	}
	m.g.n.renewer.add(s)
	if !s.good() { // it lapsed before it was entered, and was forgotten too early
		s.end(ErrLost)
		m.forget(s)
		return nil, fmt.Errorf("open session: %w: it took longer than its TTL", ErrNoQuorum)
	}
	return s, nil
}

// forget is called when a session ended.
func (m *sessions) forget(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, s)
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
	m.mu.Unlock()
	for _, s := range m.live() {
		s.end(cause)
	}
}

// live are the sessions that have not ended.
func (m *sessions) live() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}
