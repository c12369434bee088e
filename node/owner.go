package node

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// local is a shard's replica on this node, and the node's part in its ownership: followed by run, in one goroutine.
// It is the replica's observer.
type local struct {
	g       *group
	replica uint64
	machine atomic.Pointer[fsm.Machine] // nil until opened
	own     atomic.Pointer[ownership]   // the last ownership of this process, good or ended
	wake    chan struct{}               // what Raft publishes of the leader changed: for run
	gone    chan struct{}               // the same, for a hand-over
	paused  atomic.Int64                // do not claim before this time since boot: the shard was handed over
	since   time.Duration               // since boot; when the node began to run it
	freshAt atomic.Int64                // since boot; what was committed then is applied here. 0: not known
	unable  unable

	released chan struct{} // closed to give the worker of a halted replica back
	once     sync.Once     // closes released

	mu      sync.Mutex // guards waiting
	waiting map[uint64]chan fsm.Applied
}

func newLocal(g *group, replica uint64) *local {
	return &local{g: g, replica: replica, since: g.n.env.Clock.Now(), wake: make(chan struct{}, 1), gone: make(chan struct{}, 1), released: make(chan struct{}), waiting: map[uint64]chan fsm.Applied{}}
}

func (l *local) now() time.Duration { return l.g.n.env.Clock.Now() }

// pause keeps this node from claiming the shard before the given time since boot.
func (l *local) pause(until time.Duration) {
	for {
		was := l.paused.Load()
		if int64(until) <= was || l.paused.CompareAndSwap(was, int64(until)) {
			return
		}
	}
}

// resume lets this node claim the shard again, unless it is leaving.
func (l *local) resume() {
	if was := l.paused.Load(); was != math.MaxInt64 {
		l.paused.CompareAndSwap(was, 0)
	}
}

func (l *local) view() owner.View { return l.g.n.disk.host.View(l.g.id) }

// leaderChanged is a hint that it is worth to look.
func (l *local) leaderChanged() {
	for _, ch := range []chan struct{}{l.wake, l.gone} {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// run follows the shard's leadership until ctx ends: while this node leads it makes itself the owner and keeps the
// lease confirmed.
func (l *local) run(ctx context.Context) {
	look := time.NewTicker(l.g.n.c.ElectionTimeout / 4) // the hint may be lost, safety does not need it
	defer look.Stop()
	for ctx.Err() == nil {
		if v := l.view(); v.Self && l.machine.Load() != nil {
			l.lead(ctx, v.Term)
		}
		select {
		case <-l.wake:
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

// confirm proves that this node led in term at some instant after the returned one. The proof is worth a lease from then.
func (l *local) confirm(ctx context.Context, term uint64) (t0 time.Duration, ok bool) {
	t0 = l.now()
	before := l.view()
	if !owner.Leads(before, term) {
		return t0, false
	}
	if err := l.read(ctx); err != nil {
		return t0, false
	}
	return t0, owner.Confirmed(before, l.view())
}

// Why a claim came to nothing, beside the errors of proposals.
var (
	errNotConfirmed = errors.New("the leadership was not confirmed")
	errNotAwaited   = errors.New("the leadership ended, or the shard was handed over, before the claim")
	errNotAccepted  = errors.New("the claim lost against another, or against another leader")
	errLate         = errors.New("the claim was applied after its lease")
)

// claim tries once to become the owner in term, or to keep the token across terms.
func (l *local) claim(ctx context.Context, term uint64) error {
	t0, ok := l.confirm(ctx, term)
	if !ok {
		return errNotConfirmed
	}
	last := l.machine.Load().Claim()
	readAt := l.now() // after it: what another claimer waited before is in that claim
	plan := owner.PlanClaim(last, l.g.n.me, l.held(), len(l.g.replicas) == 1 && l.g.n.home.sameBoot)
	if !l.waitClaim(ctx, plan, t0, term) {
		return errNotAwaited
	}
	o := l.own.Load()
	if !plan.Keep && o != nil {
		o.end(ErrLost)
	}
	if l.now() < time.Duration(l.paused.Load()) {
		return errNotAwaited // meanwhile this node began to leave
	}
	attempt := l.g.n.attempt.Add(1)
	lease := l.g.n.c.OwnerLease
	proposed := l.now()
	waited := proposed - readAt
	if plan.Wait == 0 {
		waited = 0 // next to nothing, and the state machine would write it to every session
	}
	entry := &fsmpb.Entry{Version: l.machine.Load().Version(), Attempt: attempt, Body: &fsmpb.Entry_Claim{Claim: &fsmpb.Claim{
		Node:        l.g.n.me.Node,
		Incarnation: l.g.n.me.Incarnation,
		Term:        term,
		Lease:       int64(lease),
		Replaces:    uint64(plan.Replaces),
		Keep:        plan.Keep,
		Waited:      int64(waited),
	}}}
	a, err := l.propose(ctx, entry)
	switch {
	case err != nil:
		return err
	case a.Claim == nil || !owner.Owns(a.Attempt, attempt, a.Claim.Accepted, l.view(), term):
		return errNotAccepted
	case plan.Keep && !o.keep(term, proposed), !plan.Keep && !l.begin(newOwnership(l, a.Claim.Current.Token, term, lease), proposed):
		return errLate
	}
	return nil
}

// held is the token that this process believes in now, or 0.
func (l *local) held() fsm.Token {
	if o := l.own.Load(); o != nil && o.good() {
		return o.token
	}
	return 0
}

// waitClaim waits until the plan's claim may be proposed, while this node leads in term.
func (l *local) waitClaim(ctx context.Context, p owner.Plan, t0 time.Duration, term uint64) bool {
	for {
		now := l.now()
		if owner.MayClaim(p, t0, now) {
			return true
		}
		due := make(chan struct{})
		timer := l.g.n.env.Clock.AfterFunc(t0+p.Wait, func() { close(due) })
		select {
		case <-due:
		case <-l.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || !owner.Leads(l.view(), term) {
			return false
		}
	}
}

// begin makes o the ownership of this process, if it is still the shard's last claim.
func (l *local) begin(o *ownership, proposed time.Duration) bool {
	o.lease.Start(owner.LeaseUntil(proposed, o.length))
	if !o.good() {
		o.end(ErrLost)
		return false
	}
	o.bounds.adopt(l.machine.Load(), l.now())
	o.renewal.adopt(l.machine.Load(), l.now()) // nothing changes the sessions before this ownership does
	l.own.Store(o)
	// Another claim may have been applied after ours and before the store: then its observer saw the ownership before this one.
	if l.machine.Load().Claim().Token != o.token {
		o.end(ErrLost)
		return false
	}
	l.g.n.log.Info("owns shard", "shard", l.g.id, "term", o.term.Load(), "token", uint64(o.token))
	if !o.start() {
		return false
	}
	l.g.n.owning.gained(o)
	return true
}

// errNotApplied is a proposal that was applied by a halted machine, or whose result got lost in a restore.
var errNotApplied = errors.New("applied without a result")

// propose appends e and returns what came of it here. Errors are those of raft.Host.Propose, or errNotApplied.
func (l *local) propose(ctx context.Context, e *fsmpb.Entry) (fsm.Applied, error) {
	b, err := proto.Marshal(e)
	if err != nil {
		return fsm.Applied{}, err
	}
	ch := make(chan fsm.Applied, 1)
	l.mu.Lock()
	l.waiting[e.GetAttempt()] = ch
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, e.GetAttempt())
		l.mu.Unlock()
	}()
	l.g.n.stats.proposals.Add(1)
	if err := l.append(ctx, b); err != nil {
		return fsm.Applied{}, err
	}
	select {
	case a := <-ch:
		return a, nil
	default:
		return fsm.Applied{}, errNotApplied
	}
}

// Opened is called by the replica.
func (l *local) Opened(m *fsm.Machine) {
	l.machine.Store(m)
	l.g.n.raised(m.Version())
	l.g.feed.all(0) // it may have what another replica, which answered until now, has not
	l.leaderChanged()
}

// Applied is called by the replica, from an apply worker.
func (l *local) Applied(m *fsm.Machine, as []fsm.Applied) {
	l.g.n.stats.entries.Add(uint64(len(as)))
	own := l.own.Load()
	for _, a := range as {
		if a.Claim != nil && a.Claim.Accepted {
			l.claimed(own, a.Claim.Current)
		}
		l.mu.Lock()
		ch := l.waiting[a.Attempt]
		l.mu.Unlock()
		if ch != nil && a.Attempt != 0 {
			select {
			case ch <- a:
			default: // an attempt is applied once
			}
		}
		for _, e := range a.Events {
			switch e.Kind {
			case fsm.Raised:
				l.g.n.raised(m.Version())
			case fsm.Changed:
				l.g.feed.changed(e.Name)
			}
		}
		if own != nil {
			own.observe(m, a.Events)
		}
	}
}

func (l *local) claimed(own *ownership, c fsm.Claim) {
	if own != nil && own.token != c.Token {
		own.end(ErrLost)
	}
	l.g.setHint(c.Node)
	l.g.n.owning.changed()
}

// Restored is called by the replica after a snapshot replaced its state: events in between are not told.
func (l *local) Restored(m *fsm.Machine) {
	if own := l.own.Load(); own != nil {
		own.end(ErrLost) // also under the same token: what the entries in between did to its sessions was not told
	}
	l.g.feed.all(0)
	l.g.setHint(m.Claim().Node)
	l.g.n.owning.changed()
}

// Halted is called by the replica when it can apply nothing more: the shard stops here, the process lives.
func (l *local) Halted(err error) {
	if own := l.own.Load(); own != nil {
		own.end(ErrLost)
	}
	n := l.g.n
	if !n.life.tasks.spawn(func() { // stops after the replica was stopped
		n.log.Error("replica halted", "shard", l.g.id, "replica", l.replica, "err", err)
		if err := n.disk.host.Stop(l.g.id); err != nil {
			n.log.Error("cannot stop replica", "shard", l.g.id, "err", err)
		}
		l.release()
		n.fail(err)
	}) {
		l.release()
	}
}

// Released is closed when a halted replica's worker may go on.
func (l *local) Released() <-chan struct{} { return l.released }

func (l *local) release() { l.once.Do(func() { close(l.released) }) }
