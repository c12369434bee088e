package node

import (
	"context"
	"errors"
)

// known is what a reader knows of a record.
type known struct {
	mod   Revision // its last change
	round int      // the last listing that had it, or after which it was changed
}

// note remembers what the reader knows, if it is needed.
func (w *watch) note(e Event) {
	switch {
	case w.told == nil:
	case e.Type == EventDelete:
		delete(w.told, e.Record.Key)
	default:
		w.told[e.Record.Key] = known{e.Record.Mod, w.round}
	}
}

// list tells from a fresh listing what the reader does not know, and goes on from there. With Relist it takes another one when the reader was too slow for that.
func (w *watch) list(ctx context.Context) (more bool, err error) {
	for {
		more, err = w.listOnce(ctx)
		if w.told == nil || !errors.Is(err, ErrCompacted) {
			return more, err
		}
	}
}

func (w *watch) listOnce(ctx context.Context) (more bool, err error) {
	fresh := *w.s
	fresh.stale = 0
	var l *Listing
	if err := w.patiently(ctx, func() (err error) { l, err = fresh.List(ctx, w.prefix, nil); return err }); err != nil {
		return false, err
	}
	w.begun = true
	w.round++
	for page := l.first; ; {
		for _, r := range page.GetRecords() {
			if !w.tellListed(l.Revision, recordOf(r)) {
				return false, nil
			}
		}
		q := l.following(page)
		if q == nil {
			break
		}
		if err := w.patiently(ctx, func() (err error) { page, err = l.page(q, 0); return err }); err != nil {
			return false, err
		}
	}
	for key, k := range w.told {
		if k.round == w.round {
			continue
		}
		delete(w.told, key)
		if !w.yield(Event{Type: EventDelete, Revision: l.Revision, Record: Record{Key: key}}, nil) {
			return false, nil
		}
	}
	w.next, w.skip = l.Revision+1, 0
	return w.yield(Event{Type: EventSynced, Revision: l.Revision}, nil), nil
}

// tellListed yields a record of a listing, if the reader does not know it. It says whether to go on.
func (w *watch) tellListed(at Revision, r Record) bool {
	if w.told != nil {
		k, ok := w.told[r.Key]
		w.told[r.Key] = known{r.Mod, w.round}
		if ok && k.mod == r.Mod {
			return true
		}
	}
	return w.yield(Event{Type: EventPut, Revision: at, Record: r}, nil)
}

// patiently does something that needs the owner, again and again until there is one, or only once before the watch has begun.
func (w *watch) patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !w.begun || !errors.Is(err, ErrNoQuorum) {
			return err
		}
		sleep(ctx, lastPause)
	}
}
