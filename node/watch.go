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
	// From is the first revision wanted, usually the last one seen plus one; 0: from now on. It needs to be kept in the history still.
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
	next     Revision            // of the first change that has not been told
	skip     uint32              // so many of its changes have been
	told     map[string]Revision // with Relist: the records that the reader knows of, and their last changes
	progress <-chan time.Time    // nil without Progress
	owed     Revision            // progress is due once everything up to here has been told, 0: none is
	pause    time.Duration       // before the next look at a replica that lags behind
}

// run tells events until the reader leaves, and then returns nil, or until it must end with an error.
func (w *watch) run(ctx context.Context) error {
	g, err := w.s.group(ctx)
	if err != nil {
		return err
	}
	w.g = g
	if w.o.Relist {
		w.told = map[string]Revision{}
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
		w.next = w.o.From
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.g.n.c.RequestTimeout)
	defer cancel()
	r, err := w.g.revision(ctx)
	w.next = r + 1
	return err == nil, err
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
	if w.owed != 0 && w.next > w.owed {
		e := Event{Type: EventProgress, Revision: w.next - 1}
		w.owed = 0
		if !w.yield(e, nil) {
			return false, nil
		}
	}
	return true, nil
}

// note remembers what the reader knows, if it is needed.
func (w *watch) note(e Event) {
	switch {
	case w.told == nil:
	case e.Type == EventDelete:
		delete(w.told, e.Record.Key)
	default:
		w.told[e.Record.Key] = e.Record.Mod
	}
}

// list tells from a fresh listing what the reader does not know, and goes on from there.
func (w *watch) list(ctx context.Context) (more bool, err error) {
	fresh := *w.s
	fresh.stale = 0
	l, err := fresh.List(ctx, w.prefix, nil)
	if err != nil {
		return false, err
	}
	gone := w.told
	if gone != nil {
		w.told = make(map[string]Revision, len(gone))
	}
	for r, err := range l.All() {
		if err != nil {
			return false, err
		}
		if mod, ok := gone[r.Key]; !ok || mod != r.Mod {
			if !w.yield(Event{Type: EventPut, Revision: l.Revision, Record: r}, nil) {
				return false, nil
			}
		}
		delete(gone, r.Key)
		if w.told != nil {
			w.told[r.Key] = r.Mod
		}
	}
	for key := range gone {
		if !w.yield(Event{Type: EventDelete, Revision: l.Revision, Record: Record{Key: key}}, nil) {
			return false, nil
		}
	}
	w.next, w.skip = l.Revision+1, 0
	return w.yield(Event{Type: EventSynced, Revision: l.Revision}, nil), nil
}

// wait returns when there may be something to tell. A look that reached up to revision seen found nothing.
func (w *watch) wait(ctx context.Context, p *prefixWait, changed <-chan struct{}, seen Revision) error {
	if p.behind(seen) || w.owed > seen {
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
			w.owed = r
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
