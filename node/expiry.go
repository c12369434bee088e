package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// expiryTick is how often an owner looks for sessions that are due.
const expiryTick = 100 * time.Millisecond

// renewals are an owner's memory of the shard's sessions: when each was last renewed, and which must end.
type renewals struct {
	o *ownership

	mu   sync.Mutex // guards the fields below
	m    map[fsm.Token]*tracked
	late time.Duration // by how much the loop was late in all
}

// tracked is a session, and how late the loop was in all when it was last renewed: its deadline is later by what came since.
type tracked struct {
	owner.Session
	late time.Duration
}

func (r *renewals) init(o *ownership) {
	r.o, r.m = o, map[fsm.Token]*tracked{}
}

// adopt takes over the sessions that the claim found.
func (r *renewals) adopt(m *fsm.Machine, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Sessions(func(s fsm.Session) bool {
		if r.m[s.ID] == nil {
			r.addLocked(s, now)
		}
		return true
	})
}

func (r *renewals) addLocked(s fsm.Session, now time.Duration) {
	a := owner.Adopted(s.TTL, s.Silence, now)
	a.Hot = s.Hot
	r.m[s.ID] = &tracked{Session: a, late: r.late}
}

// opened hears of a session made under this ownership.
func (r *renewals) opened(m *fsm.Machine, id fsm.Token) {
	s, ok := m.Session(id)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m[id] == nil {
		r.addLocked(s, r.o.l.now())
	}
}

func (r *renewals) forget(id fsm.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, id)
}

// renew renews sessions, hot ones in memory, the others by one entry.
func (r *renewals) renew(ctx context.Context, ids []fsm.Token) []wire.RenewReply_Answer {
	answers := make([]wire.RenewReply_Answer, len(ids))
	var logged []uint64
	var at []int
	r.mu.Lock()
	now := r.o.l.now()
	good := r.o.lease.Good(now) && !r.o.leaving.Load()
	for i, id := range ids {
		s := r.m[id]
		if s == nil {
			answers[i] = wire.RenewReply_GONE
			if !good {
				answers[i] = wire.RenewReply_NOT_OWNER
			}
			continue
		}
		switch owner.Renew(s.Session, good) {
		case owner.InMemory:
			s.Session, s.late = owner.AfterRenewal(s.Session, owner.InMemory, now), r.late
			answers[i] = wire.RenewReply_RENEWED
		case owner.InLog:
			answers[i] = wire.RenewReply_BUSY
			if !s.Renewing {
				s.Renewing = true
				logged, at = append(logged, uint64(id)), append(at, i)
			}
		default:
			answers[i] = wire.RenewReply_BUSY
			if !good {
				answers[i] = wire.RenewReply_NOT_OWNER
			}
		}
	}
	r.mu.Unlock()
	if len(logged) > 0 {
		exists := r.renewLogged(ctx, logged)
		for k, i := range at {
			if exists != nil && exists[k] {
				answers[i] = wire.RenewReply_RENEWED
			} else if exists != nil {
				answers[i] = wire.RenewReply_GONE
			}
		}
	}
	return answers
}

// renewLogged commits a renewal entry; nil: it is not known to be applied. It waits for the entry whatever becomes of the
// caller, since until then no session in it may be ended.
func (r *renewals) renewLogged(ctx context.Context, ids []uint64) []bool {
	res, err := r.o.submit(context.WithoutCancel(ctx), &fsmpb.Op{Kind: &fsmpb.Op_Renew{Renew: &fsmpb.Renew{Ids: ids}}})
	r.o.l.g.n.stats.renewalsLogged.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.l.now()
	ok := err == nil && res.GetStatus() == fsmpb.Result_OK && len(res.GetExists()) == len(ids)
	for k, id := range ids {
		s := r.m[fsm.Token(id)]
		if s == nil {
			continue
		}
		s.Renewing = false
		if ok && res.GetExists()[k] {
			s.Session, s.late = owner.AfterRenewal(s.Session, owner.InLog, now), r.late
		}
	}
	if !ok {
		return nil
	}
	return res.GetExists()
}

// loop ends silent sessions and checkpoints those that have been silent for long.
func (r *renewals) loop(ctx context.Context) {
	t := time.NewTicker(expiryTick)
	defer t.Stop()
	last := r.o.l.now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := r.o.l.now()
		expired, checkpoint := r.due(now, now-last)
		if checkpoint != nil {
			_, _ = checkpoint.wait(ctx) // whatever came of it, its sessions are renewed through the log next
		}
		if len(expired) > 0 {
			r.expire(ctx, expired)
		}
		r.o.bounds.end(ctx, now, r.lateness())
		last = r.o.l.now() // renewals were served while this waited for its entries: that was no lateness
	}
}

func (r *renewals) lateness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// due marks and returns the sessions to end at now, when passed is the time since the last look, and puts a checkpoint of those that
// have been silent for long into the queue: still under the mutex, so that no renewal that comes later gets before it.
func (r *renewals) due(now, passed time.Duration) (expired []uint64, checkpoint *queuedOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if passed > 2*expiryTick {
		r.late += passed - expiryTick
	}
	if !r.o.lease.Good(now) || r.o.leaving.Load() {
		return nil, nil
	}
	var silent []*fsmpb.Checkpoint_Silence
	for id, s := range r.m {
		switch {
		case len(expired) == fsm.MaxIDs || len(silent) == fsm.MaxIDs:
			// The rest is for the next look.
		case owner.Expires(s.Session, now, r.late-s.late):
			s.Expiring = true
			expired = append(expired, uint64(id))
		case owner.Checkpoints(s.Session, now):
			silent = append(silent, r.silence(id, owner.Silence(s.Session, now)))
			s.Session = owner.Checkpointing(s.Session)
		}
	}
	if len(silent) == 0 {
		return expired, nil
	}
	q := newQueued(&fsmpb.Op{Kind: &fsmpb.Op_Checkpoint{Checkpoint: &fsmpb.Checkpoint{Sessions: silent}}})
	r.o.queue.push(q) // if it is closed the ownership has ended
	return expired, &q
}

// silence is the record of a silence that was measured now. It names what the log has last heard of the session: if a renewal comes before
// it in the log after all, it is refused.
func (r *renewals) silence(id fsm.Token, d time.Duration) *fsmpb.Checkpoint_Silence {
	c := &fsmpb.Checkpoint_Silence{Id: uint64(id), Silence: int64(d)}
	if s, ok := r.o.l.machine.Load().Session(id); ok {
		c.Heard = uint64(s.Heard)
	}
	return c
}

// expire ends sessions. While it is not known what came of it they stay marked and are never renewed; the next rounds ask again.
func (r *renewals) expire(ctx context.Context, ids []uint64) {
	r.o.l.g.n.log.Info("sessions expire", "shard", r.o.l.g.id, "count", len(ids))
	unknown := false
	for ctx.Err() == nil {
		res, err := r.o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: ids, Expired: true}}})
		if err == nil && res.GetStatus() == fsmpb.Result_OK {
			r.o.l.g.n.stats.sessionsExpired.Add(uint64(len(ids)))
			return
		}
		unknown = unknown || errors.Is(err, errMaybe)
		if errors.Is(err, errNotOwner) && !unknown {
			r.spare(ids) // no attempt was appended: as before
			return
		}
		sleep(ctx, expiryTick)
	}
}

func (r *renewals) spare(ids []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if s := r.m[fsm.Token(id)]; s != nil {
			s.Expiring = false
		}
	}
}

// silences are the checkpoints that a release carries.
func (r *renewals) silences() []*fsmpb.Checkpoint_Silence {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.l.now()
	out := make([]*fsmpb.Checkpoint_Silence, 0, len(r.m))
	for id, s := range r.m {
		if s.Renewing {
			continue // its renewal may be in the log before the release
		}
		out = append(out, r.silence(id, owner.Silence(s.Session, now)))
	}
	return out
}
