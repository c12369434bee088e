package node

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// An EventType says what an Event tells.
type EventType uint8

// Types of events.
const (
	EventPut      EventType = iota + 1 // a record was written: Record, and Prev if there was one
	EventDelete                        // a record was removed: Record has its key, Prev what it was
	EventSynced                        // the listing of Initial or Relist is complete: it shows Revision
	EventProgress                      // every change up to Revision has been told
)

// String is the type's name.
func (t EventType) String() string {
	switch t {
	case EventPut:
		return "put"
	case EventDelete:
		return "delete"
	case EventSynced:
		return "synced"
	case EventProgress:
		return "progress"
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// An Event is one change of a record, or a mark in a stream of them. The changes of one transaction share a revision and follow one another. Prev is the zero
// Record if there was none, and for what a listing tells. At is when the owner's wall clock says that it was, to be shown to people only; zero if not known.
type Event struct {
	Type         EventType
	Revision     Revision
	Record, Prev Record
	At           time.Time
}

func eventOf(c *wire.Change) Event {
	e := Event{Type: EventPut, Revision: Revision(c.GetRevision()), Record: recordOf(c.GetRecord())}
	if c.GetDeleted() {
		e.Type = EventDelete
	}
	if c.GetPrev() != nil {
		e.Prev = recordOf(c.GetPrev())
	}
	if c.GetAt() != 0 {
		e.At = time.Unix(0, c.GetAt())
	}
	return e
}

// Former values are fetched in pages, which are read in steps: with large values a page is shorter.
const (
	historyPage = 100
	historyStep = 5
)

// History yields the changes of key that are still kept, the last one first: its former values. The first page is read at the shard's owner, so it has
// every change that was acknowledged before the call. An error comes last and ends it: ErrNoQuorum, ErrTooLarge, ErrInvalid, ErrClosed.
func (s *Shard) History(ctx context.Context, key string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := checkKey("history", key); err != nil {
			yield(Event{}, err)
			return
		}
		before := uint64(0)
		for {
			page, err := s.former(ctx, &wire.Former{Key: []byte(key), Before: before, Limit: historyPage})
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, c := range page.GetChanges() {
				if !yield(eventOf(c), nil) {
					return
				}
				before = c.GetRevision()
			}
			if len(page.GetChanges()) == 0 {
				return
			}
		}
	}
}

func (s *Shard) former(ctx context.Context, q *wire.Former) (*wire.ChangesPage, error) {
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	reply, _, err := g.ask(ctx, "history", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Former{Former: q}})
	return reply.GetChanges(), err
}

// formerOf reads the kept changes of a key; nil: the state cannot be read.
func formerOf(m *fsm.Machine, q *wire.Former) *wire.ChangesPage {
	page := &wire.ChangesPage{Revision: uint64(m.Revision())}
	before, size := Revision(q.GetBefore()), 0
	for len(page.Changes) < int(min(q.GetLimit(), historyPage)) && size < pageBytes {
		cs, err := m.History(q.GetKey(), before, historyStep)
		if err != nil {
			return nil
		}
		for _, c := range cs {
			w := wireChange(c, false)
			page.Changes = append(page.Changes, w)
			size += proto.Size(w)
			before = c.Revision
		}
		if len(cs) < historyStep {
			break
		}
	}
	return page
}
