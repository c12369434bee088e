package node

import (
	"context"
	"errors"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// An owner looks for what is due when the first of it is, but no more often than every shortLook, and no more rarely than every
// expiryTick, by which it also sees how late it runs.
const (
	shortLook  = 5 * time.Millisecond
	expiryTick = 100 * time.Millisecond
)

// loop ends silent sessions and checkpoints those that have been silent for long.
func (r *renewals) loop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		from := r.o.l.now() // renewals were served while it waited for its entries: that is no lateness
		wait := r.untilNext(from)
		t.Reset(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := r.o.l.now()
		r.noteLateness(now - from - wait)
		for ctx.Err() == nil && r.round(ctx, now) {
			now = r.o.l.now()
		}
		r.o.bounds.end(ctx, now, r.lateness())
	}
}

// untilNext is how long nothing is due.
func (r *renewals) untilNext(now time.Duration) time.Duration {
	r.mu.Lock()
	next := r.agenda.next()
	r.mu.Unlock()
	return min(max(min(next, r.o.bounds.next())-now, shortLook), expiryTick)
}

// noteLateness notes by how much the loop was late. A little is usual, and means nothing for renewals that wait to be read.
func (r *renewals) noteLateness(late time.Duration) {
	if late <= expiryTick {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late += late
}

func (r *renewals) lateness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// round ends and checkpoints up to maxMany of the sessions that are due. It says whether there may be more.
func (r *renewals) round(ctx context.Context, now time.Duration) (more bool) {
	expired, silent, more := r.due(now)
	if len(silent) > 0 {
		if q := r.checkpoint(silent, r.heard(silent)); q != nil {
			_, _ = q.wait(ctx) // whatever came of it, its sessions are renewed through the log next
		}
	}
	if len(expired) > 0 {
		r.expire(ctx, expired)
	}
	return more
}

// due marks and returns the sessions to end at now, and returns those whose silence is to be recorded. It looks at no more than maxLook.
func (r *renewals) due(now time.Duration) (expired []uint64, silent []fsm.Token, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.o.lease.Good(now) || r.o.leaving.Load() {
		return nil, nil, false
	}
	for range maxLook {
		s, ok := r.agenda.due(now)
		if !ok {
			return expired, silent, false
		}
		switch {
		case owner.Expires(s.Session, now, r.late-s.late):
			s.Expiring = true
			expired = append(expired, uint64(s.id))
		case owner.Checkpoints(s.Session, now):
			silent = append(silent, s.id)
			r.agenda.put(s, now+expiryTick) // again, if it comes to nothing
		case s.Renewing:
			r.agenda.put(s, now+expiryTick)
		default:
			r.placeLocked(s)
		}
		if len(expired) == maxMany || len(silent) == maxMany {
			break
		}
	}
	return expired, silent, true
}

// heard is what the log has last heard of sessions, 0 of one that is gone.
func (r *renewals) heard(ids []fsm.Token) []fsm.Token {
	m := r.o.l.machine.Load()
	heard := make([]fsm.Token, len(ids))
	for i, id := range ids {
		if s, ok := m.Session(id); ok {
			heard[i] = s.Heard
		}
	}
	return heard
}

// checkpoint puts the silences of those that are silent still into the queue, nil if there are none. heard was read before they are measured. It
// is done under the mutex, so that from then on every renewal of them goes through the log.
func (r *renewals) checkpoint(ids, heard []fsm.Token) *queuedOp {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.l.now()
	var silences []*fsmpb.Checkpoint_Silence
	for i, id := range ids {
		s := r.m[id]
		if s == nil || !owner.Checkpoints(s.Session, now) {
			continue
		}
		silences = append(silences, silence(s, heard[i], now))
		s.Session = owner.Checkpointing(s.Session)
		r.placeLocked(s)
	}
	if len(silences) == 0 {
		return nil
	}
	c := &r.o.l.g.n.stats.sessions
	c.checkpoints.Add(1)
	c.checkpointed.Add(uint64(len(silences)))
	q := newQueued(&fsmpb.Op{Kind: &fsmpb.Op_Checkpoint{Checkpoint: &fsmpb.Checkpoint{Sessions: silences}}})
	r.o.queue.push(q) // if it is closed the ownership has ended, and has answered
	return &q
}

// expire ends sessions. While it is not known what came of it they stay marked and are never renewed; the next rounds ask again.
func (r *renewals) expire(ctx context.Context, ids []uint64) {
	n := r.o.l.g.n
	n.log.Info("sessions expire", "shard", r.o.l.g.id, "count", len(ids))
	unknown := false
	for ctx.Err() == nil {
		n.stats.sessions.expiries.Add(1)
		res, err := r.o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: ids, Expired: true}}})
		if err == nil && res.GetStatus() == fsmpb.Result_OK {
			n.stats.sessions.expired.Add(uint64(len(ids)))
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
			r.agenda.put(s, r.o.l.now()+expiryTick)
		}
	}
}
