package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/memnet"
)

// Notices of grants that are gone, or never come, are kept up to a bound, however many come while the listener runs:
// memory does not grow. A grant that was asked for before some were forgotten is asked about, one that was asked for after is not.
func TestListener_EarlyNoticesAreBounded(t *testing.T) {
	w := &listener{running: true}
	w.init(nil)
	grantOf := func(t Token) *grant {
		g := &grant{}
		g.hold.token = t
		g.revoked.init()
		return g
	}
	w.add(grantOf(1), w.round())
	before := w.round()
	for i := range 10 * maxEarly {
		w.told(nil, &wire.Notices{Notices: []*wire.Notice{{Token: uint64(i + 2), Ended: i%2 == 0}}}, false)
		if len(w.early) > maxEarly {
			t.Fatalf("after %d notices: got %d kept, want at most %d", i+1, len(w.early), maxEarly)
		}
	}
	const forgotten, last = 2, 10*maxEarly + 1
	if !w.add(grantOf(forgotten), before) || !w.unsure[forgotten] {
		t.Error("a grant whose notice was forgotten is not asked about")
	}
	if g := grantOf(last); !w.add(g, before) || !isClosed(g.revoked.ch) {
		t.Error("a grant whose notice is kept is not told of it")
	}
	if w.add(grantOf(last-1), before) {
		t.Error("a grant whose end is kept is listened for")
	}
	if !w.add(grantOf(last+1), w.round()) || w.unsure[last+1] {
		t.Error("a grant that was asked for after all that was forgotten is asked about")
	}
	for _, g := range w.grants {
		w.remove(g)
	}
	if len(w.grants)+len(w.unsure) != 0 {
		t.Errorf("after all are gone: got %d grants, %d of them unsure", len(w.grants), len(w.unsure))
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A grant whose holder learns of it only after the notice of its end, or of a request to give it up, was forgotten hears of it at once all the same, also while the
// listener's question is open at the owner; beside it the other grants stay.
func TestListener_ForgottenNoticeIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMachine(t, memnet.New(memnet.Options{})).open(t, memAddr(0), func(c *Config) { c.Bootstrap = 1 })
		awaitReady(t, n)
		ctx, s := t.Context(), n.ShardAt(1)
		lock := func(name string) *Lock {
			l, err := s.Lock(ctx, name, nil)
			if err != nil {
				t.Fatalf("lock %q: %v", name, err)
			}
			return l
		}
		other, ended, asked := lock("other"), lock("ended"), lock("asked")
		time.Sleep(time.Second)
		w := &n.group(1).listener
		round := w.round()
		w.remove(ended.grant) // as if their answers were not here yet
		w.remove(asked.grant)
		if err := s.ForceRelease(ctx, "ended", ended.Token()); err != nil {
			t.Fatal(err)
		}
		if err := s.RequestRevoke(ctx, "asked"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		if len(w.early) != 2 {
			t.Errorf("got %d notices before their grants, want 2", len(w.early))
		}
		w.nextLocked()
		w.mu.Unlock()
		w.add(ended.grant, round)
		w.add(asked.grant, round)
		time.Sleep(50 * time.Millisecond)
		if err := ended.Check(); !errors.Is(err, ErrLost) || !isClosed(ended.Done()) {
			t.Errorf("the grant that ended: check %v, done %v, want ErrLost", err, isClosed(ended.Done()))
		}
		if err := asked.Check(); err != nil || !isClosed(asked.Revoked()) {
			t.Errorf("the grant that is asked for: check %v, revoked %v", err, isClosed(asked.Revoked()))
		}
		if err := other.Check(); err != nil || isClosed(other.Revoked()) {
			t.Errorf("the grant beside them: check %v, revoked %v", err, isClosed(other.Revoked()))
		}
		if err := s.RequestRevoke(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if !isClosed(other.Revoked()) {
			t.Error("the listener does not hear of what comes later")
		}
	})
}

// A grant that came while a question was open whose answer tells of a gap is not judged by that answer, but asked about, and one that the answer names is kept.
func TestListener_GrantDuringGap(t *testing.T) {
	w := &listener{running: true}
	w.init(nil)
	for i, g := range []*grant{{}, {}, {}} {
		g.hold.token = Token(i + 1)
		w.add(g, w.round())
	}
	began := w.round()
	ended := w.told(map[Token]bool{1: true, 2: true}, &wire.Notices{Resync: true, Held: []uint64{1}}, true)
	if len(ended) != 1 || ended[0].hold.token != 2 {
		t.Errorf("ended: got %v, want grant 2", ended)
	}
	if w.unsure[1] || !w.unsure[3] || w.grants[3] == nil {
		t.Errorf("unsure: got %v, want grant 3", w.unsure)
	}
	late := &grant{}
	late.hold.token = 4
	if w.add(late, began); !w.unsure[4] {
		t.Error("a grant that was asked for before the gap is not asked about")
	}
}
