package node

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// progressEvery is how often a watch with Progress tells how far it is.
const progressEvery = 5 * time.Second

// WatchOptions are for Watch; nil is the default: the changes from now on.
type WatchOptions struct {
	// From is the first revision wanted, usually the last one seen plus one; 0: from now on. It needs to be kept in the history still, and to be at most the
	// next one: from beyond that, a future that is lost, the watch ends with ErrInvalid.
	From Revision
	// Initial tells all records first, as puts of one revision, then EventSynced with it, then what changed since. Not with From.
	Initial bool
	// Relist goes on where the history no longer reaches back: what differs is told from a fresh listing, as puts and deletes of one revision, then
	// EventSynced. Deletes are worked out for the keys that this watch has told of, which it has to remember: about 100 bytes for each.
	Relist bool
	// Progress tells about every 5 s, with EventProgress, up to which revision everything has been told: the shard's owner has said so since the last one.
	// If none comes for longer, the node is cut off, and silence does not mean that nothing changes.
	Progress bool
}

// Watch yields the changes of records whose keys begin with prefix, in the order of revisions, each once and none left out, until ctx ends or the node stops;
// then it yields that error last. The changes come from the nearest replica, another one when that fails, and a reader may take its time:
// it holds up nobody and costs nothing until it falls behind the history (Config.History), which ends the watch with ErrCompacted, unless
// Relist. Waiting costs no goroutine. Other errors: ErrInvalid; ErrNoQuorum, only before the first event.
func (s *Shard) Watch(ctx context.Context, prefix string, o *WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, end := s.n.watching(ctx)
		defer end()
		w := &watch{s: s, prefix: prefix, yield: yield}
		if o != nil {
			w.o = *o
		}
		if err := w.run(ctx); err != nil {
			yield(Event{}, fmt.Errorf("watch %q: %w", prefix, err))
		}
	}
}

// watch is a cursor over a shard's history.
type watch struct {
	s      *Shard
	prefix string
	o      WatchOptions
	yield  func(Event, error) bool

	g        *group
	next     Revision         // of the first change that has not been told
	skip     uint32           // so many of its changes have been
	begun    bool             // from now on it waits for an owner that it needs
	ahead    bool             // next is the caller's, and may be beyond what the shard has come to
	told     map[string]known // with Relist: the records that the reader knows of
	round    int              // of listings
	progress <-chan time.Time // nil without Progress
	owing    bool             // progress is due once everything up to owed has been told
	owed     Revision
	pause    time.Duration // before the next look at a replica that lags behind
}

// run tells events until the reader leaves, and then returns nil, or until it must end with an error.
func (w *watch) run(ctx context.Context) error {
	g, err := w.s.group(ctx)
	if err != nil {
		return err
	}
	w.g = g
	if w.o.Relist {
		w.told = map[string]known{}
	}
	if w.o.Progress {
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		w.progress = t.C
	}
	if more, err := w.start(ctx); !more {
		return err
	}
	wait := g.feed.join(w.prefix)
	defer wait.leave()
	for {
		changed := wait.next()
		q := &wire.ChangesRequest{Prefix: []byte(w.prefix), From: uint64(w.next), Skip: w.skip}
		page, err := g.changes(ctx, q, g.n.attemptTime())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil: // no replica can be reached: that may pass
			sleep(ctx, lastPause)
			continue
		}
		if w.ahead {
			if reached, err := w.reached(ctx, Revision(page.GetRevision())); err != nil {
				return err
			} else if !reached {
				sleep(ctx, lastPause)
				continue
			}
		}
		if more, err := w.tell(ctx, page); !more {
			return err
		}
		if w.full(page) || page.GetCompacted() != 0 {
			continue
		}
		if err := w.wait(ctx, wait, changed, Revision(page.GetRevision())); err != nil {
			return err
		}
	}
}

// full says that there is more to be read at once.
func (w *watch) full(page *wire.ChangesPage) bool { return page.GetNext() <= page.GetRevision() }

// start finds where to begin. It says whether to go on.
func (w *watch) start(ctx context.Context) (more bool, err error) {
	switch {
	case w.o.Initial && w.o.From != 0:
		return false, fmt.Errorf("%w: give From or Initial, not both", ErrInvalid)
	case w.o.Initial:
		return w.list(ctx)
	case w.o.From != 0:
		w.next, w.begun, w.ahead = w.o.From, true, true
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.g.n.c.RequestTimeout)
	defer cancel()
	r, err := w.g.revision(ctx)
	w.next, w.begun = r+1, true
	return err == nil, err
}

// reached says whether the shard has come to the revision before the caller's first one, as a replica at revision r or else the owner knows. An error: it has not.
func (w *watch) reached(ctx context.Context, r Revision) (bool, error) {
	if r < w.next-1 {
		ctx, cancel := context.WithTimeout(ctx, w.g.n.attemptTime())
		defer cancel()
		now, err := w.g.revision(ctx)
		if err != nil {
			return false, nil
		}
		if now < w.next-1 {
			return false, fmt.Errorf("%w: revision %d is beyond the next one, the shard is at %d", ErrInvalid, w.next, now)
		}
	}
	w.ahead = false
	return true, nil
}

// tell yields what a page has. It says whether to go on.
func (w *watch) tell(ctx context.Context, page *wire.ChangesPage) (more bool, err error) {
	if oldest := page.GetCompacted(); oldest != 0 {
		if !w.o.Relist {
			return false, &CompactedError{Oldest: Revision(oldest)}
		}
		return w.list(ctx)
	}
	for _, c := range page.GetChanges() {
		e := eventOf(c)
		if !w.yield(e, nil) {
			return false, nil
		}
		w.note(e)
	}
	w.next, w.skip = Revision(page.GetNext()), page.GetSkip()
	if w.owing && w.next > w.owed {
		e := Event{Type: EventProgress, Revision: w.next - 1}
		w.owing = false
		if !w.yield(e, nil) {
			return false, nil
		}
	}
	return true, nil
}

// wait returns when there may be something to tell. A look that reached up to revision seen found nothing.
func (w *watch) wait(ctx context.Context, p *prefixWait, changed <-chan struct{}, seen Revision) error {
	if p.behind(seen) || w.owing && w.owed > seen {
		w.pause = min(max(2*w.pause, firstPause), lastPause)
		sleep(ctx, w.pause) // the replica that was asked has yet to apply it
		return nil
	}
	w.pause = 0
	select {
	case <-changed:
		w.g.n.stats.wakeups.Add(1)
	case <-w.progress:
		ctx, cancel := context.WithTimeout(ctx, w.g.n.attemptTime())
		defer cancel()
		if r, err := w.g.pulse.revision(ctx, w.g); err == nil {
			w.owing, w.owed = true, r
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// revision is the shard's, as its owner says.
func (g *group) revision(ctx context.Context) (Revision, error) {
	reply, _, err := g.ask(ctx, "find revision", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Identify{Identify: &wire.Identify{}}})
	return Revision(reply.GetIdentity().GetRevision()), err
}

// pulse asks the owner for the shard's revision on behalf of all watches of this node, at most once a second.
type pulse struct {
	turn chan struct{} // holds an element while somebody asks; guards the fields below
	at   time.Time
	last Revision
}

func (p *pulse) init() { p.turn = make(chan struct{}, 1) }

func (p *pulse) revision(ctx context.Context, g *group) (Revision, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	if !p.at.IsZero() && time.Since(p.at) < time.Second {
		return p.last, nil
	}
	began := time.Now()
	r, err := g.revision(ctx)
	if err == nil {
		p.at, p.last = began, r
	}
	return r, err
}
