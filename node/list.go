package node

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// ListOptions are for List; nil is the default: all records under the prefix, in the order of keys.
type ListOptions struct {
	From, To string   // only keys with From <= key < To; empty: no bound
	Limit    int      // at most so many records; 0: all
	KeysOnly bool     // leave the values out
	Reverse  bool     // the last key first
	At       Revision // as the records were at that revision, if the history reaches back to it; 0: now
}

// A Listing is the records that List found, all of one revision. They are fetched in pages, while All is read.
type Listing struct {
	// Revision is what the listing shows. A Watch from the next one on has every change since.
	Revision Revision

	//nolint:containedctx // a listing is one call that is read in parts
	ctx   context.Context
	s     *Shard
	q     *wire.ListRecords
	limit int
	first *wire.RecordsPage
}

// CompactedError is the error of a read or watch at a revision that the history no longer reaches back to. It wraps ErrCompacted.
type CompactedError struct {
	Oldest Revision // the first one whose changes are kept
}

// Error says how far the history reaches.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v: the oldest revision kept is %d", ErrCompacted, e.Oldest)
}

// Unwrap makes it an ErrCompacted.
func (e *CompactedError) Unwrap() error { return ErrCompacted }

// List returns the records whose keys begin with prefix, all as they were at one revision, which the listing names. The read is linearizable.
// Pages of at most 1,000 records or 1 MiB are fetched while the listing is read, until ctx ends. Errors: ErrCompacted if the history no longer
// reaches back to the revision, ErrNoQuorum, ErrInvalid, ErrClosed.
func (s *Shard) List(ctx context.Context, prefix string, o *ListOptions) (*Listing, error) {
	if o == nil {
		o = &ListOptions{}
	}
	if o.Limit < 0 {
		return nil, fmt.Errorf("list: %w: a limit of %d", ErrInvalid, o.Limit)
	}
	from, to := keyRange(prefix, o.From, o.To)
	q := &wire.ListRecords{From: from, To: to, At: uint64(o.At), KeysOnly: o.KeysOnly, Reverse: o.Reverse}
	l := &Listing{ctx: ctx, s: s, q: q, limit: o.Limit}
	page, err := l.page(q, o.Limit)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	l.first, l.Revision = page, Revision(page.GetRevision())
	return l, nil
}

// All yields the records. It may be called again, and then fetches the pages after the first again. An error comes last and ends it: the listing is not
// whole then. Errors are those of List.
func (l *Listing) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		page, left := l.first, l.limit
		for {
			for _, r := range page.GetRecords() {
				if !yield(recordOf(r), nil) {
					return
				}
			}
			left -= len(page.GetRecords())
			q := l.following(page)
			if q == nil || l.limit > 0 && left <= 0 {
				return
			}
			var err error
			if page, err = l.page(q, left); err != nil {
				yield(Record{}, fmt.Errorf("list: %w", err))
				return
			}
		}
	}
}

// following asks for what comes after a page; nil: nothing does.
func (l *Listing) following(page *wire.RecordsPage) *wire.ListRecords {
	n := len(page.GetRecords())
	if !page.GetMore() || n == 0 {
		return nil
	}
	q := &wire.ListRecords{From: l.q.GetFrom(), To: l.q.GetTo(), At: uint64(l.Revision), KeysOnly: l.q.GetKeysOnly(), Reverse: l.q.GetReverse()}
	last := page.GetRecords()[n-1].GetKey()
	if q.Reverse {
		q.To = last
	} else {
		q.From = append(append([]byte(nil), last...), 0)
	}
	return q
}

// page fetches what comes next, at most left records if there is a limit.
func (l *Listing) page(q *wire.ListRecords, left int) (*wire.RecordsPage, error) {
	q.Limit = pageRecords
	if l.limit > 0 {
		q.Limit = uint32(min(pageRecords, left))
	}
	ctx, end, err := l.s.n.begin(l.ctx, true)
	if err != nil {
		return nil, err
	}
	defer end()
	g, err := l.s.group(ctx)
	if err != nil {
		return nil, err
	}
	var page *wire.RecordsPage
	if l.s.stale > 0 {
		page = g.listStale(ctx, l.s.stale, q)
	}
	if page == nil {
		var reply *wire.OwnerReply
		reply, _, err = g.ask(ctx, "list", &wire.OwnerRequest{Ask: &wire.OwnerRequest_ListRecords{ListRecords: q}})
		page = reply.GetRecords()
	}
	switch {
	case err != nil:
		return nil, err
	case page.GetCompacted() != 0:
		return nil, &CompactedError{Oldest: Revision(page.GetCompacted())}
	case q.GetAt() > page.GetRevision():
		return nil, fmt.Errorf("%w: revision %d is not reached yet, the shard is at %d", ErrInvalid, q.GetAt(), page.GetRevision())
	}
	return page, nil
}

// listRecords reads a page from the state; nil: it cannot be read.
func listRecords(m *fsm.Machine, q *wire.ListRecords) *wire.RecordsPage {
	var compacted *fsm.CompactedError
	page, err := m.List(fsm.ListQuery{
		From: q.GetFrom(), To: q.GetTo(), At: Revision(q.GetAt()), Limit: int(q.GetLimit()), Bytes: pageBytes,
		KeysOnly: q.GetKeysOnly(), Reverse: q.GetReverse(),
	})
	switch {
	case errors.As(err, &compacted):
		return &wire.RecordsPage{Compacted: uint64(compacted.Oldest)}
	case errors.Is(err, fsm.ErrFuture):
		return &wire.RecordsPage{Revision: uint64(m.Revision())}
	case err != nil:
		return nil
	}
	out := &wire.RecordsPage{Revision: uint64(page.Revision), More: page.More, Records: make([]*fsmpb.Record, len(page.Records))}
	for i := range page.Records {
		out.Records[i] = wireRecord(&page.Records[i])
	}
	return out
}

// keyRange is the range of keys that begin with prefix and are between from and to. An empty end means that there is none.
func keyRange(prefix, from, to string) (low, high []byte) {
	low, high = []byte(max(prefix, from)), after(prefix)
	if to != "" && (high == nil || to < string(high)) {
		high = []byte(to)
	}
	return low, high
}

// after is the first key behind all that begin with prefix, nil if there is none.
func after(prefix string) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			b := []byte(prefix[:i+1])
			b[i]++
			return b
		}
	}
	return nil
}
