package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// A Leader is who leads an election, under which token, and what it proclaims. The zero Leader: nobody leads.
type Leader struct {
	Member Member
	Token  Token
	Value  []byte
}

// A Leadership is one term as the leader of an election. Make it with Shard.Campaign and do not copy it. It is safe for concurrent use, and
// has the methods of Hold.
type Leadership struct{ *grant }

var _ Hold = (*Leadership)(nil)

// Campaign waits in a fair queue until this node leads the election name, 1 to 1024 bytes, and proclaims value, at most 64 KiB. Names of elections
// and of locks never meet. It is not re-entrant: a node that leads and campaigns again waits behind itself, as another's campaign would, and its leadership stays as
// it is; Proclaim changes the value. Errors are those of Lock.
func (s *Shard) Campaign(ctx context.Context, name string, value []byte) (*Leadership, error) {
	r := &request{what: "campaign", op: &fsmpb.Lock{Kind: fsmpb.Lock_ELECTION, Name: []byte(name), Value: bytes.Clone(value)}}
	g, _, err := s.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Leadership{g}, nil
}

// Resign gives the leadership back. It behaves as Lock.Unlock does.
func (l *Leadership) Resign(ctx context.Context) error {
	if err := l.unlock(ctx); err != nil {
		return fmt.Errorf("resign from %q: %w", l.title(), err)
	}
	return nil
}

// Proclaim shows another value, at most 64 KiB, under the same token. ErrLost, ErrNotHeld: this node no longer leads, and nothing was done;
// other errors are those of Put.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	if l.grant == nil {
		return fmt.Errorf("proclaim: %w", ErrNotHeld)
	}
	if len(value) > fsm.MaxLockValue {
		return fmt.Errorf("proclaim: %w: the value has %d bytes, at most %d are allowed", ErrTooLarge, len(value), fsm.MaxLockValue)
	}
	if err := l.hold.strict(); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	ctx, end, err := l.s.g.n.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	defer end()
	op := &fsmpb.Op{Kind: &fsmpb.Op_SetValue{SetValue: &fsmpb.SetValue{Kind: l.kind, Name: []byte(l.name), Token: uint64(l.hold.token), Value: bytes.Clone(value)}}}
	res, err := l.s.call(ctx, "proclaim", l.guards, op)
	switch {
	case errors.Is(err, errNoSession), err == nil && res.GetStatus() == fsmpb.Result_NOT_HELD:
		return fmt.Errorf("proclaim: %w", ErrLost)
	}
	_, err = checked("proclaim", res, err)
	return err
}

// Transfer gives the leadership to the first campaigner of the node with that UUID, under a new token. From the moment it is sent this leadership is
// no longer trusted. ErrNotFound: no such campaigner waits; then it is given back, and the next in the queue leads. ErrInvalid: the UUID is none;
// nothing was done. ErrFenced: it was won through a guarded view, whose guard is outdated; give it back with Resign. Other errors are those of
// Lock.Unlock.
func (l *Leadership) Transfer(ctx context.Context, to string) error {
	if l.grant == nil {
		return fmt.Errorf("transfer: %w", ErrNotHeld)
	}
	if len(to) == 0 || len(to) > fsm.MaxNode || !utf8.ValidString(to) {
		return fmt.Errorf("transfer %q: %w: %.64q is no node's UUID", l.name, ErrInvalid, to)
	}
	op := &fsmpb.Op{Guards: l.guards, Kind: &fsmpb.Op_Transfer{Transfer: &fsmpb.Transfer{Kind: l.kind, Name: []byte(l.name), Token: uint64(l.hold.token), Node: to}}}
	res, err := l.release(ctx, op)
	if err != nil {
		return fmt.Errorf("transfer %q: %w", l.name, err)
	}
	if res.GetStatus() == fsmpb.Result_NOT_FOUND {
		return errors.Join(fmt.Errorf("transfer %q to %s: %w", l.name, to, ErrNotFound), l.Resign(ctx))
	}
	return nil
}

// Lead runs fn while this node leads the election name, again and again: when the leadership is lost it campaigns again, and when fn fails it resigns
// and campaigns again after 100 ms to 10 s. fn's ctx ends with the leadership; the leadership is given back only after fn returned.
// While the node shuts down it waits for fn up to Config.DrainTimeout, whose ctx then has the cause ErrHandedOver; if fn goes on after that the
// leadership runs out. Lead returns nil once fn returned nil, else the cause of ctx or why no campaign is possible, such as ErrClosed.
func (s *Shard) Lead(ctx context.Context, name string, fn func(context.Context, *Leadership) error) error {
	if fn == nil {
		return fmt.Errorf("lead: %w: fn is nil", ErrInvalid)
	}
	for backoff := firstBackoff; ; {
		l, err := s.Campaign(ctx, name, nil)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				l.giveBack(ctx)
			}
			return context.Cause(ctx)
		case s.endless(err):
			return err
		case err == nil:
			began := time.Now()
			lost, ferr := l.run(ctx, fn)
			switch {
			case ferr == nil && !lost:
				return nil
			case s.n.leading.over():
				return fmt.Errorf("lead %q: %w", name, ErrClosed)
			}
			s.n.log.Debug("leads no more", "shard", s.ID(), "token", uint64(l.Token()), "err", ferr)
			if time.Since(began) > lastBackoff {
				backoff = firstBackoff
			}
		}
		if !sleep(ctx, backoff) {
			return context.Cause(ctx)
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// endless says that a campaign through the view will fail for ever.
func (s *Shard) endless(err error) bool {
	for _, end := range []error{ErrClosed, ErrInvalid, ErrTooLarge, ErrConflict, ErrFenced, ErrForeignCluster} {
		if errors.Is(err, end) {
			return true
		}
	}
	return s.in != nil && errors.Is(err, ErrLost) // with its session
}

// run calls fn, and resigns whatever becomes of it. It says whether the leadership was lost before fn returned.
func (l *Leadership) run(ctx context.Context, fn func(context.Context, *Leadership) error) (lost bool, err error) {
	if n := l.s.g.n; n.leading.enter(l.grant) {
		defer n.leading.leave(l.grant)
	} else {
		l.giveBack(ctx)
		return false, ErrClosed
	}
	defer l.giveBack(ctx)
	err = fn(l.Context(ctx), l)
	return errors.Is(l.Check(), ErrLost), err
}

// Observe yields the leader of the election name, and then each change of leader or value, until ctx ends or the node stops; then it yields that error
// last. Changes between two reads are coalesced: the latest is never lost, and a loss and regain shows as a new token.
func (s *Shard) Observe(ctx context.Context, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := checkName("observe", name); err != nil {
			yield(Leader{}, err)
			return
		}
		ctx, end := s.n.watching(ctx)
		defer end()
		g, err := s.group(ctx)
		if err != nil {
			yield(Leader{}, err)
			return
		}
		q := &wire.Observe{Name: []byte(name)}
		for {
			reply, _, err := g.ask(ctx, "observe", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Observe{Observe: q}})
			if err != nil {
				yield(Leader{}, err)
				return
			}
			l := reply.GetLeader()
			hash := xxhash.Sum64(l.GetValue())
			if q.Seen && q.Token == l.GetToken() && q.ValueHash == hash {
				continue
			}
			q.Seen, q.Token, q.ValueHash = true, l.GetToken(), hash
			if !yield(Leader{Member: s.n.memberOf(l.GetNode()), Token: Token(l.GetToken()), Value: l.GetValue()}, nil) {
				return
			}
		}
	}
}

// leader answers, nil when ctx has ended, once the leader differs from what was seen, or after a while.
func (o *ownership) leader(ctx context.Context, q *wire.Observe) *wire.Leader {
	t := time.NewTimer(awaitTime)
	defer t.Stop()
	for {
		changed := o.elections.next()
		leader := &wire.Leader{}
		if l, ok := o.l.machine.Load().Lock(fsmpb.Lock_ELECTION, q.GetName()); ok && len(l.Holders) > 0 {
			h := l.Holders[0]
			leader.Token, leader.Node, leader.Value = uint64(h.Token), h.Node, h.Value
		}
		if !q.GetSeen() || leader.GetToken() != q.GetToken() || xxhash.Sum64(leader.GetValue()) != q.GetValueHash() {
			return leader
		}
		select {
		case <-changed:
			continue
		case <-t.C:
		case <-o.done:
		case <-ctx.Done():
			return nil
		}
		return leader
	}
}
