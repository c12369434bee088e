package node

import (
	"context"
	"errors"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// pageRecords is how many records or changes a page has at most; it is also ended at pageBytes. The first one always fits.
const pageRecords = 1000

// changes answers q from the replica here, or has another node answer it: any replica will do. limit bounds each attempt. The page may be empty.
func (g *group) changes(ctx context.Context, q *wire.ChangesRequest, limit time.Duration) (*wire.ChangesPage, error) {
	if page := g.changesHere(ctx, q); page != nil {
		return page, nil
	}
	q.Header, q.Shard = g.n.header(), uint32(g.id)
	err := ErrNoQuorum
	var lonely *wire.ChangesPage
	for _, node := range g.sources() {
		reply := &wire.ChangesReply{}
		actx, cancel := context.WithTimeout(ctx, limit)
		failed := g.n.ask(actx, node, wire.MethodChanges, q, reply)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case failed != nil:
			err = failed
		case reply.GetOutcome() == wire.Outcome_DONE:
			g.source.Store(&node)
			return reply.GetPage(), nil
		case reply.GetOutcome() == wire.Outcome_UNKNOWN && lonely == nil:
			lonely = reply.GetPage()
		}
	}
	if lonely != nil {
		return lonely, nil
	}
	return nil, err
}

// changesFor answers q for another node.
func (g *group) changesFor(ctx context.Context, q *wire.ChangesRequest) *wire.ChangesReply {
	page := g.changesHere(ctx, q)
	if page == nil {
		return &wire.ChangesReply{Outcome: wire.Outcome_NOT_OWNER}
	}
	if leader, _ := g.n.disk.host.Leader(g.id); leader == 0 { // cut off, it may be: who asks should follow a replica that hears more
		return &wire.ChangesReply{Outcome: wire.Outcome_UNKNOWN, Page: page}
	}
	return &wire.ChangesReply{Outcome: wire.Outcome_DONE, Page: page}
}

// sources are the other nodes with a replica, in the order in which this one asks them: the one that answered last, those of its own zone, the
// others, and at the end those that gossip does not see alive.
func (g *group) sources() []string {
	ranks := make([][]string, 4)
	last := g.source.Load()
	for _, r := range g.replicas {
		id := r.GetNode()
		m, known := g.n.net.gossip.Member(id)
		rank := 2
		switch {
		case id == g.n.ID():
			continue
		case !known || !g.n.alive(id):
			rank = 3
		case last != nil && *last == id:
			rank = 0
		case m.Zone == g.n.c.Zone:
			rank = 1
		}
		ranks[rank] = append(ranks[rank], id)
	}
	var out []string
	for _, ids := range ranks {
		out = append(out, ids...)
	}
	return out
}

// changesHere answers from this node's replica, after waiting for the first change for a while if it is asked to; nil: it has none that can.
func (g *group) changesHere(ctx context.Context, q *wire.ChangesRequest) *wire.ChangesPage {
	if g.local == nil {
		return nil
	}
	m := g.local.machine.Load()
	if m == nil {
		return nil
	}
	page := changesOf(m, q)
	if q.GetWait() <= 0 || page == nil || len(page.GetChanges()) > 0 || page.GetCompacted() != 0 || q.GetFrom() == 0 {
		return page
	}
	w := g.feed.join(string(q.GetPrefix()))
	defer w.leave()
	t := time.NewTimer(min(time.Duration(q.GetWait()), awaitTime))
	defer t.Stop()
	for {
		changed := w.next()
		page = changesOf(m, q)
		if page == nil || len(page.GetChanges()) > 0 || page.GetCompacted() != 0 {
			return page
		}
		select {
		case <-changed:
		case <-t.C:
			return page
		case <-ctx.Done():
			return page
		}
	}
}

// changesOf reads a page of changes; nil: the state cannot be read. A replica that is behind what is asked for has none yet.
func changesOf(m *fsm.Machine, q *wire.ChangesRequest) *wire.ChangesPage {
	if q.GetFrom() == 0 {
		r := uint64(m.Revision())
		return &wire.ChangesPage{Next: r + 1, Revision: r}
	}
	var compacted *fsm.CompactedError
	page, err := m.Changes(fsm.ChangesQuery{Prefix: q.GetPrefix(), From: Revision(q.GetFrom()), Skip: q.GetSkip(), Limit: pageRecords, Bytes: pageBytes})
	switch {
	case errors.As(err, &compacted):
		return &wire.ChangesPage{Revision: uint64(m.Revision()), Compacted: uint64(compacted.Oldest)}
	case errors.Is(err, fsm.ErrFuture):
		return &wire.ChangesPage{Next: q.GetFrom(), Skip: q.GetSkip(), Revision: uint64(m.Revision())}
	case err != nil:
		return nil
	}
	return wirePage(page, q.GetKeysOnly())
}

func wirePage(page fsm.ChangePage, keysOnly bool) *wire.ChangesPage {
	out := &wire.ChangesPage{Next: uint64(page.Next), Skip: page.Skip, Revision: uint64(page.Revision), Changes: make([]*wire.Change, len(page.Changes))}
	for i, c := range page.Changes {
		out.Changes[i] = wireChange(c, keysOnly)
	}
	return out
}

func wireChange(c fsm.Change, keyOnly bool) *wire.Change {
	if keyOnly {
		return &wire.Change{Revision: uint64(c.Revision), Record: &fsmpb.Record{Key: c.Record.Key}}
	}
	out := &wire.Change{Revision: uint64(c.Revision), At: c.At, Deleted: c.Deleted, Record: wireRecord(&c.Record)}
	if c.Prev != nil {
		out.Prev = wireRecord(c.Prev)
	}
	return out
}

func wireRecord(r *fsm.Record) *fsmpb.Record {
	return &fsmpb.Record{
		Key: r.Key, Value: r.Value, Create: uint64(r.Create), Mod: uint64(r.Mod), Version: r.Version, Session: uint64(r.Session),
		Ttl: int64(r.TTL), Age: int64(r.Age),
	}
}
