package membership

import (
	"slices"
	"time"
)

// Bounds of the table. A failed member is kept long, since its address is what finds it again.
const (
	maxMembers = 4096
	maxNotices = 256 // that wait to be logged, and complaints that are remembered
	keepLeft   = time.Hour
	keepFailed = 72 * time.Hour
)

func (t *table) wakeLocked() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// complainLocked queues a notice unless there was one for key. It forgets all keys when there are too many.
func (t *table) complainLocked(key, text string, args ...any) bool {
	if _, ok := t.complaint[key]; ok {
		return false
	}
	if len(t.complaint) >= maxNotices {
		clear(t.complaint)
	}
	t.complaint[key] = struct{}{}
	if len(t.notices) < maxNotices {
		t.notices = append(t.notices, notice{text, args})
	}
	t.wakeLocked()
	return true
}

// roomLocked makes room for one more member, if need be by forgetting the one that is gone for longest.
func (t *table) roomLocked() bool {
	if len(t.entries)+1 < maxMembers {
		return true
	}
	var oldest *entry
	for _, e := range t.entries {
		if !e.up && (oldest == nil || e.since.Before(oldest.since)) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	delete(t.entries, oldest.ID)
	t.bumpLocked()
	return true
}

// forget drops members that are gone for so long that nobody will miss them.
func (t *table) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, e := range t.entries {
		keep := keepFailed
		if e.leaving {
			keep = keepLeft
		}
		if !e.up && now.Sub(e.since) > keep {
			delete(t.entries, id)
			t.bumpLocked()
		}
	}
}

// departed takes the farewell of a member from a third node, in case this node missed it.
func (t *table) departed(meta []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := parse(meta)
	if err != nil || !c.leaving || t.frozen {
		return
	}
	if e := t.entries[c.ID]; e != nil && t.bootLocked(c.ID, c.boot()) == nil {
		t.takeLocked(e, c, meta)
	}
}

// farewells are the encoded records of at most n members that left last.
func (t *table) farewells(n int) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gone []*entry
	for _, e := range t.entries {
		if !e.up && e.leaving {
			gone = append(gone, e)
		}
	}
	slices.SortFunc(gone, func(a, b *entry) int { return b.since.Compare(a.since) })
	var metas [][]byte
	for _, e := range gone[:min(n, len(gone))] {
		metas = append(metas, e.meta)
	}
	return metas
}
