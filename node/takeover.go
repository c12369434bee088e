package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oarlock/oarlock/node/internal/owner"
)

// stuckAfter is how many election timeouts a leader has to become owner before it gives the leadership away.
const stuckAfter = 5

// errHandsOver is why the leadership of a shard that was handed over is given away.
var errHandsOver = errors.New("handing over")

// unable is what a node remembers of not having been able to own a shard that it led.
type unable struct {
	mu    sync.Mutex // guards the fields below
	why   error      // of the last claim, nil after one that succeeded
	given int        // leaderships given away since
	until time.Duration
}

// failed notes a claim that came to nothing.
func (u *unable) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.why = err
}

// gaveUp notes that the leadership is given away at now: until a while has passed, longer each time, the node takes the shard from nobody.
func (u *unable) gaveUp(now time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = now + min(retryMove<<min(u.given, 16), lastRetryMove)
	u.given++
}

// owns notes that the node owns the shard.
func (u *unable) owns() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.why, u.given, u.until = nil, 0, 0
}

// shy says whether the node gave the leadership away a while ago.
func (u *unable) shy(now time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now < u.until
}

// rounds is how often the leadership was given away since the node owned the shard.
func (u *unable) rounds() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.given
}

func (u *unable) reason() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.why == nil {
		return ""
	}
	return u.why.Error()
}

// lead is this node's leadership in one term: it claims the shard until it owns it or leads no more. Failures are tried again after longer and
// longer pauses, and when it takes too long another replica gets the leadership: a leader that does not own is worth less than none.
func (l *local) lead(ctx context.Context, term uint64) {
	least := max(l.g.n.c.ElectionTimeout/20, 10*time.Millisecond)
	pause := least
	began := l.now()
	for ctx.Err() == nil && owner.Leads(l.view(), term) {
		if o := l.own.Load(); o != nil && o.good() && o.term.Load() == term {
			return // its own goroutine confirms it
		}
		if l.now() < time.Duration(l.paused.Load()) {
			began, pause = l.now(), least
		} else {
			err := l.claim(ctx, term)
			if err == nil {
				l.unable.owns()
				return
			}
			if !errors.Is(err, errNotAwaited) {
				l.g.n.stats.notClaimed.Add(1)
				l.unable.failed(err)
			}
			if l.now()-began > stuckAfter*l.g.n.c.ElectionTimeout {
				l.giveUp(ctx, err)
				return
			}
		}
		sleep(ctx, pause)
		pause = min(2*pause, l.g.n.c.ElectionTimeout/2)
	}
}

// giveUp gives the leadership to another replica because this node cannot own the shard, and waits until it is gone. If it stays, this node goes
// on trying.
func (l *local) giveUp(ctx context.Context, why error) {
	if !l.giveAway(why) {
		return
	}
	l.unable.gaveUp(l.now())
	if l.awaitGone(ctx, l.g.n.c.ElectionTimeout*11/10) {
		l.g.n.stats.givenUp.Add(1)
	}
}

// giveAway asks another replica to lead, not always the same first. It says whether one was asked.
func (l *local) giveAway(why error) bool {
	var others []uint64
	for _, r := range l.g.replicas {
		if r.GetId() != l.replica && l.g.n.alive(r.GetNode()) {
			others = append(others, r.GetId())
		}
	}
	first := l.unable.rounds()
	for i := range others {
		to := others[(first+i)%len(others)]
		l.g.n.log.Warn("giving leadership away", "shard", l.g.id, "replica", to, "err", why)
		if err := l.g.n.disk.host.Transfer(l.g.id, to); err == nil {
			return true
		}
	}
	return false
}
