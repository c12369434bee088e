package node

import (
	"context"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

const (
	trimTick   = 10 * time.Second
	trimAge    = 7 * 24 * time.Hour // older changes are forgotten
	trimMark   = time.Hour          // by so much more
	trimBehind = 10                 // a tenth more than Config.History may be kept, so that it is not trimmed all the time
)

// trimLoop forgets the changes of records that are beyond Config.History or older than 7 days, until ctx ends with the ownership.
func (o *ownership) trimLoop(ctx context.Context) {
	t := time.NewTicker(trimTick)
	defer t.Stop()
	past := past{}
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		m := o.l.machine.Load()
		old := past.note(o.l.now(), m.Revision())
		if to := trimTo(m.Oldest(), m.Revision(), old, Revision(o.l.g.n.c.History)); to > m.Oldest() {
			_, _ = o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_Compact{Compact: &fsmpb.Compact{Oldest: uint64(to)}}})
		}
	}
}

// trimTo is the oldest revision to keep, of those from oldest to last: so many, and none up to old.
func trimTo(oldest, last, old, keep Revision) Revision {
	to := max(oldest, old+1)
	if last+1-oldest > keep+keep/trimBehind {
		to = max(to, last+1-keep)
	}
	return to
}

// past is what an owner remembers of the shard's revision. A change is as old as this owner has measured on its clock since boot, never what
// wall clocks say, which may be stepped: so it is kept longer than asked for where owners change, and never shorter.
type past []mark

// mark is the revision at a time since boot.
type mark struct {
	at   time.Duration
	last Revision
}

// note remembers last once an hour, and returns the last revision that is older than the age, 0 if none is known.
func (p *past) note(now time.Duration, last Revision) (old Revision) {
	marks := *p
	if n := len(marks); n == 0 || now-marks[n-1].at >= trimMark {
		marks = append(marks, mark{now, last})
	}
	for len(marks) > 1 && now-marks[1].at > trimAge {
		marks = marks[1:]
	}
	*p = marks
	if now-marks[0].at > trimAge {
		return marks[0].last
	}
	return 0
}
