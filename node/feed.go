package node

import (
	"sync"
	"time"

	"github.com/oarlock/oarlock/node/internal/wire"
)

// Times of a node that follows the changes of a shard of which it has no replica.
const (
	feedWait  = 500 * time.Millisecond // a replica answers by then, so that a dead one is noticed within a second
	feedLimit = 900 * time.Millisecond // then another is asked
)

// feed wakes those who wait for changes of a shard's records, each only for changes under its prefix. Where there is a replica it hears of them
// when they are applied; elsewhere a goroutine asks a replica for the changed keys, while anybody waits.
type feed struct {
	g *group

	mu      sync.Mutex // guards the fields below
	m       map[string]*prefixWait
	lengths map[int]int // of the prefixes in m, and how many have each
	heard   Revision    // whoever waited for changes up to here was woken; only kept where there is no replica
	running bool
}

// prefixWait is one prefix that is waited for. Its channel is closed and replaced when something under it changed.
type prefixWait struct {
	f       *feed
	prefix  string
	ch      chan struct{}
	waiters int
}

func (f *feed) init(g *group) { f.g, f.m, f.lengths = g, map[string]*prefixWait{}, map[int]int{} }

// join enters a waiter, who has to leave. It takes next, looks, asks whether that was behind, and only then waits.
func (f *feed) join(prefix string) *prefixWait {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.m[prefix]
	if w == nil {
		w = &prefixWait{f: f, prefix: prefix, ch: make(chan struct{})}
		f.m[prefix] = w
		f.lengths[len(prefix)]++
	}
	w.waiters++
	if f.g.local == nil && !f.running {
		f.heard = 0
		f.running = f.g.n.life.tasks.spawn(f.follow) // stops when nobody waits, or with the node
	}
	return w
}

// next is closed at the next change under the prefix.
func (w *prefixWait) next() <-chan struct{} {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.ch
}

// behind says that the feed has heard of more than a look that reached up to the revision: another replica answered it.
func (w *prefixWait) behind(r Revision) bool {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return r < w.f.heard
}

func (w *prefixWait) leave() {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.waiters--; w.waiters > 0 {
		return
	}
	delete(f.m, w.prefix)
	if f.lengths[len(w.prefix)]--; f.lengths[len(w.prefix)] == 0 {
		delete(f.lengths, len(w.prefix))
	}
}

func (w *prefixWait) wakeLocked() {
	close(w.ch)
	w.ch = make(chan struct{})
}

// changed wakes those whose prefix the key has. It never blocks.
func (f *feed) changed(key []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changedLocked(key)
}

func (f *feed) changedLocked(key []byte) {
	for n := range f.lengths {
		if n > len(key) {
			continue
		}
		if w := f.m[string(key[:n])]; w != nil {
			w.wakeLocked()
		}
	}
}

// all wakes everybody: what changed is not known.
func (f *feed) all(heard Revision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = heard
	for _, w := range f.m {
		w.wakeLocked()
	}
}

// idle says that nobody waits; then following stops.
func (f *feed) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.m) > 0 {
		return false
	}
	f.running = false
	return true
}

// follow asks a replica for the keys that changed, again and again.
func (f *feed) follow() {
	ctx := f.g.n.life.ctx
	from, skip := uint64(0), uint32(0) // not known yet
	for !f.idle() && ctx.Err() == nil {
		page, err := f.g.changes(ctx, &wire.ChangesRequest{From: from, Skip: skip, KeysOnly: true, Wait: int64(feedWait)}, feedLimit)
		switch {
		case err != nil:
			sleep(ctx, lastPause)
		case from == 0 || page.GetCompacted() != 0:
			from, skip = page.GetRevision()+1, 0
			f.all(Revision(page.GetRevision()))
		default:
			f.hear(page)
			from, skip = page.GetNext(), page.GetSkip()
		}
	}
}

func (f *feed) hear(page *wire.ChangesPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = max(f.heard, Revision(page.GetNext())-1)
	for _, c := range page.GetChanges() {
		f.changedLocked(c.GetRecord().GetKey())
	}
}
