package node

import (
	"context"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// Stale returns a view whose Get and List may be answered by the replica of this node, as the shard was at most max ago, by this node's clock. Such reads
// need no owner, and no network either while a recent one has shown that the replica is up to date. Where there is no replica, and with a max of zero or
// less, reads are as usual. Writes and watches are not affected. Views combine.
func (s *Shard) Stale(max time.Duration) *Shard {
	v := *s
	v.stale = max
	return &v
}

// stale reads from the replica here if it had applied, at most max before read returned, all that was committed by then. It says whether it did.
func (g *group) stale(ctx context.Context, max time.Duration, read func(*fsm.Machine) bool) bool {
	if g.local == nil {
		return false
	}
	for range 2 {
		m := g.local.machine.Load()
		if m == nil || !read(m) {
			return false
		}
		if at := time.Duration(g.local.freshAt.Load()); at > 0 && g.local.now()-at <= max {
			return true
		}
		if !g.local.refresh(ctx) {
			return false
		}
	}
	return false
}

// refresh makes sure that the replica here has applied all that is committed now.
func (l *local) refresh(ctx context.Context) bool {
	now := int64(l.now())
	if l.g.n.disk.host.Read(ctx, l.g.id, l.g.n.c.ElectionTimeout) != nil {
		return false
	}
	for {
		at := l.freshAt.Load()
		if at >= now || l.freshAt.CompareAndSwap(at, now) {
			return true
		}
	}
}

// getStale reads a record from the replica here, nil: ask the owner.
func (g *group) getStale(ctx context.Context, max time.Duration, key string) (res *wire.ReadResult) {
	if !g.stale(ctx, max, func(m *fsm.Machine) bool {
		res = readOf(m, &wire.Read{Key: []byte(key)})
		return res != nil
	}) {
		return nil
	}
	return res
}

// listStale lists from the replica here, nil: ask the owner.
func (g *group) listStale(ctx context.Context, max time.Duration, q *wire.ListRecords) (page *wire.RecordsPage) {
	if !g.stale(ctx, max, func(m *fsm.Machine) bool {
		page = listRecords(m, q)
		return page != nil && (page.GetRevision() >= q.GetAt() || page.GetCompacted() != 0) // else the owner may be further
	}) {
		return nil
	}
	return page
}
