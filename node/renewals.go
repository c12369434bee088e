package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// Bounds of what is done at once, so that a shard with very many sessions stalls nothing: neither its log nor the renewals of others.
const (
	maxLook = 1024 // sessions looked at under the mutex
	maxMany = 256  // sessions that one entry renews, checkpoints or ends: a millisecond or two of work for the state machine
)

// renewals are an owner's memory of the shard's sessions: when each was last renewed, and which must end. The state machine is never waited
// for under the mutex: a disk that stalls must not keep renewals from being taken.
type renewals struct {
	o *ownership

	mu     sync.Mutex // guards the fields below
	m      map[fsm.Token]*tracked
	agenda agenda[*tracked] // all but those whose end was proposed
	late   time.Duration    // by how much the loop was late in all
}

// tracked is a session, and how late the loop was in all when it was last renewed: its deadline is later by what came since.
type tracked struct {
	timing
	owner.Session
	id   fsm.Token
	late time.Duration
}

func (r *renewals) init(o *ownership) {
	r.o, r.m = o, map[fsm.Token]*tracked{}
}

// adopt takes over the sessions that the claim found.
func (r *renewals) adopt(m *fsm.Machine, now time.Duration) {
	var all []fsm.Session
	m.Sessions(func(s fsm.Session) bool {
		all = append(all, s)
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range all {
		if r.m[s.ID] == nil {
			r.addLocked(s, now)
		}
	}
}

func (r *renewals) addLocked(s fsm.Session, now time.Duration) {
	x := &tracked{Session: owner.Adopted(s.TTL, s.Silence, now), id: s.ID, late: r.late}
	x.Hot = s.Hot
	r.m[s.ID] = x
	r.placeLocked(x)
}

// placeLocked enters a session into the agenda, or moves it: an earlier look than needed finds nothing to do.
func (r *renewals) placeLocked(x *tracked) { r.agenda.put(x, owner.NextLook(x.Session, r.late-x.late)) }

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
	if x := r.m[id]; x != nil {
		r.agenda.remove(x)
		delete(r.m, id)
	}
}

// renew renews sessions, hot ones in memory, the others by entries, one after the other.
func (r *renewals) renew(ctx context.Context, ids []fsm.Token) []wire.RenewReply_Answer {
	answers := make([]wire.RenewReply_Answer, len(ids))
	var at []int // the ids that need the log
	for from := 0; from < len(ids); from += maxLook {
		to := min(from+maxLook, len(ids))
		for _, i := range r.renewInMemory(ids[from:to], answers[from:to]) {
			at = append(at, from+i)
		}
	}
	for some := range slices.Chunk(at, maxMany) {
		logged := make([]uint64, len(some))
		for k, i := range some {
			logged[k] = uint64(ids[i])
		}
		for k, exists := range r.renewLogged(ctx, logged) {
			if answers[some[k]] = wire.RenewReply_GONE; exists {
				answers[some[k]] = wire.RenewReply_RENEWED
			}
		}
	}
	return answers
}

// renewInMemory answers for those that it can, and returns the indexes of those that must be renewed through the log, which are marked.
func (r *renewals) renewInMemory(ids []fsm.Token, answers []wire.RenewReply_Answer) (logged []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.l.now()
	good := r.o.lease.Good(now) && !r.o.leaving.Load()
	renewed := 0
	for i, id := range ids {
		answers[i] = wire.RenewReply_BUSY
		if !good {
			answers[i] = wire.RenewReply_NOT_OWNER
		}
		s := r.m[id]
		if s == nil {
			if good {
				answers[i] = wire.RenewReply_GONE
			}
			continue
		}
		switch owner.Renew(s.Session, good) {
		case owner.InMemory:
			s.Session, s.late = owner.AfterRenewal(s.Session, owner.InMemory, now), r.late
			answers[i] = wire.RenewReply_RENEWED
			renewed++
		case owner.InLog:
			if !s.Renewing {
				s.Renewing = true
				logged = append(logged, i)
			}
		}
	}
	r.o.l.g.n.stats.sessions.inMemory.Add(uint64(renewed))
	return logged
}

// renewLogged commits a renewal entry; nil: it is not known to be applied. It waits for the entry whatever becomes of the
// caller, since until then no session in it may be ended.
func (r *renewals) renewLogged(ctx context.Context, ids []uint64) []bool {
	res, err := r.o.submit(context.WithoutCancel(ctx), &fsmpb.Op{Kind: &fsmpb.Op_Renew{Renew: &fsmpb.Renew{Ids: ids}}})
	r.o.l.g.n.stats.sessions.logged.Add(1)
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
			r.placeLocked(s) // hot, it is to be looked at sooner
		}
	}
	if !ok {
		return nil
	}
	return res.GetExists()
}

// silences are the checkpoints that a release carries, those of the longest silence if there are too many.
func (r *renewals) silences() []*fsmpb.Checkpoint_Silence {
	heard := map[fsm.Token]fsm.Token{} // read before any silence is measured: see silence
	r.o.l.machine.Load().Sessions(func(s fsm.Session) bool {
		heard[s.ID] = s.Heard
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.l.now()
	out := make([]*fsmpb.Checkpoint_Silence, 0, len(r.m))
	for id, s := range r.m {
		if s.Renewing {
			continue // its renewal may be in the log before the release
		}
		out = append(out, silence(s, heard[id], now))
	}
	if len(out) > fsm.MaxIDs {
		slices.SortFunc(out, func(a, b *fsmpb.Checkpoint_Silence) int { return int(b.GetSilence() - a.GetSilence()) })
		out = out[:fsm.MaxIDs]
	}
	return out
}

// silence is the record of a silence that is measured now. It names what the log had last heard of the session, as read before: if a renewal
// came into the log since, or comes before the record after all, the record is refused.
func silence(s *tracked, heard fsm.Token, now time.Duration) *fsmpb.Checkpoint_Silence {
	return &fsmpb.Checkpoint_Silence{Id: uint64(s.id), Silence: int64(owner.Silence(s.Session, now)), Heard: uint64(heard)}
}
