package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

// ownership is one token of a shard's ownership, from the claim that minted it until it ends. It may span terms.
type ownership struct {
	l       *local
	token   fsm.Token
	term    atomic.Uint64 // of the accepted claim, or of the last one that kept the token
	length  time.Duration // of the lease
	since   time.Duration // when it began
	lease   owner.Lease
	hold    hold // what callbacks see; ends with the lease, or before when the shard is handed over
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}  // closed when the ownership ended
	wg      sync.WaitGroup // its goroutines
	queue   opQueue
	renewal renewals
	waits   waits
	calls   callbacks
	told
	leaving atomic.Bool   // being handed over: nothing new is served
	turn    chan struct{} // holds an element while an entry is being committed
	lapse   lapse

	mu    sync.Mutex // guards ended
	ended bool
}

// told is what an owner knows and tells beside its sessions.
type told struct {
	elections change // something about an election of the shard changed
	notices   notices
	ages      ages
	bounds    bounds
	keeps     keeps
	ttls      ttls
}

func (t *told) init(o *ownership) {
	t.elections.init()
	t.notices.changed.init()
	t.ages.init()
	t.bounds.init(o)
	t.keeps.init(o)
	t.ttls.init(o)
}

func newOwnership(l *local, token fsm.Token, term uint64, length time.Duration) *ownership {
	o := &ownership{l: l, token: token, length: length, since: l.now(), done: make(chan struct{}), turn: make(chan struct{}, 1)}
	o.lapse = lapse{clock: l.g.n.env.Clock, lease: &o.lease, length: length, f: o.lapsed}
	o.term.Store(term)
	o.ctx, o.cancel = context.WithCancel(l.g.n.life.ctx)
	o.hold.init(l.g.n.env.Clock, token, &o.lease)
	o.queue.init()
	o.waits.init()
	o.calls.idle = make(chan struct{})
	o.told.init(o)
	o.renewal.init(o)
	return o
}

// start begins the ownership's work. It says whether it did: not when the node is closing.
func (o *ownership) start() bool {
	for _, f := range []func(context.Context){o.confirmLoop, o.commitLoop, o.renewal.loop, o.keeps.loop, o.ttls.loop, o.trimLoop} {
		o.wg.Add(1)
		if !o.l.g.n.life.tasks.spawn(func() { // stops when the ownership ends
			defer o.wg.Done()
			f(o.ctx)
		}) {
			o.wg.Done()
			o.end(ErrClosed)
			return false
		}
	}
	o.lapse.arm()
	return true
}

// good says by the strict clock whether the lease is trusted.
func (o *ownership) good() bool { return o.lease.Good(o.l.now()) }

// end ends the ownership for ever, for the cause that its hold reports.
func (o *ownership) end(cause error) {
	o.lease.End()
	o.hold.end(cause)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	o.ended = true
	o.lapse.stop()
	o.cancel()
	for _, q := range o.queue.close() {
		q.done <- opOutcome{err: errNotOwner}
	}
	close(o.done)
	o.l.leaderChanged()
	o.l.g.n.owning.changed()
}

// extend moves the deadline after a confirmation that began at t0.
func (o *ownership) extend(t0 time.Duration) bool {
	return o.lease.Extend(o.l.now(), owner.LeaseUntil(t0, o.length))
}

// keep carries the token into a new term, after a claim for it was proposed at the given time and accepted.
func (o *ownership) keep(term uint64, proposed time.Duration) bool {
	if !o.extend(proposed) {
		o.end(ErrLost)
		return false
	}
	o.term.Store(term)
	return true
}

// lapsed is called by the clock, which a logger that blocks must not hold up.
func (o *ownership) lapsed() {
	o.end(ErrLost)
	n := o.l.g.n
	n.stats.lapsed.Add(1)
	n.life.tasks.spawn(func() { // stops when it is logged
		n.log.Warn("ownership lapsed", "shard", o.l.g.id, "token", uint64(o.token), "term", o.term.Load())
	})
}

// confirmLoop starts a confirmation every third of the lease, whether or not one is pending.
func (o *ownership) confirmLoop(ctx context.Context) {
	t := time.NewTicker(o.length / 3)
	defer t.Stop()
	var pending sync.WaitGroup
	defer pending.Wait()
	for {
		select {
		case <-t.C:
			pending.Go(func() { // stops when the read completes or times out, or ctx ends
				term := o.term.Load()
				if t0, ok := o.l.confirm(ctx, term); ok && owner.Extends(o.term.Load(), term) {
					o.extend(t0)
				}
			})
		case <-ctx.Done():
			return
		}
	}
}

// observe tells those who wait for what happened. It is called from an apply worker.
func (o *ownership) observe(m *fsm.Machine, events []fsm.Event) {
	for _, e := range events {
		if e.Of == fsmpb.Lock_ELECTION {
			o.elections.change()
		}
		switch e.Kind {
		case fsm.Granted:
			o.ages.note(waitKey{e.Session, e.Seq}, o.l.now())
			o.waits.wake(waitKey{e.Session, e.Seq})
		case fsm.Freed:
			o.ages.forget(waitKey{e.Session, e.Seq})
			o.waits.wake(waitKey{e.Session, e.Seq})
			if e.Reason == fsm.Forced {
				o.tell(m, e, true)
			}
			o.bounds.observe(e, o.l.now())
		case fsm.RevokeRequested:
			o.tell(m, e, false)
		case fsm.HoldStarted, fsm.Closed, fsm.Reopened:
			o.bounds.observe(e, o.l.now())
		case fsm.JobCompleted:
			o.keeps.completed(m, e.Name)
		case fsm.Answered, fsm.ValueChanged:
			o.waits.wake(waitKey{e.Session, e.Seq})
		case fsm.Changed:
			o.ttls.changed(e)
		case fsm.SessionOpened:
			o.renewal.opened(m, e.Session)
		case fsm.SessionEnded:
			o.renewal.forget(e.Session)
			o.ages.forgetSession(e.Session)
			o.waits.wakeSession(e.Session)
		}
	}
}

// tell gives a holder notice that its grant has ended against its will, or that it is asked to give it up.
func (o *ownership) tell(m *fsm.Machine, e fsm.Event, ended bool) {
	if s, ok := m.Session(e.Session); ok {
		o.notices.add(notice{node: s.Node, token: e.Token, ended: ended})
	}
}
