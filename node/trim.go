package node

import (
	"context"
	"sort"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
)

const (
	trimTick   = 10 * time.Second
	trimAge    = 7 * 24 * time.Hour // older changes are forgotten
	trimBehind = 10                 // a tenth more than Config.History may be kept, so that it is not trimmed all the time
)

// trimLoop forgets the changes of records that are beyond Config.History or older than 7 days, until ctx ends with the ownership.
func (o *ownership) trimLoop(ctx context.Context) {
	t := time.NewTicker(trimTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		m := o.l.machine.Load()
		if to := trimTo(m, Revision(o.l.g.n.c.History), time.Now()); to > m.Oldest() {
			_, _ = o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_Compact{Compact: &fsmpb.Compact{Oldest: uint64(to)}}})
		}
	}
}

// trimTo is the oldest revision to keep. The age is told by the wall clocks of the owners that made the changes: a clock that jumps ahead by days
// loses history, which watchers hear of, and nothing else.
func trimTo(m *fsm.Machine, keep Revision, now time.Time) Revision {
	oldest, last := m.Oldest(), m.Revision()
	to := oldest
	if count := last + 1 - oldest; count > keep+keep/trimBehind {
		to = last + 1 - keep
	}
	if at, ok := m.ChangeTime(to); !ok || at >= now.Add(-trimAge).UnixNano() {
		return to
	}
	young := sort.Search(int(last+1-to), func(i int) bool {
		at, ok := m.ChangeTime(to + Revision(i))
		return !ok || at >= now.Add(-trimAge).UnixNano()
	})
	return to + Revision(young)
}
