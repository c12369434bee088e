package node

import (
	"testing"
	"time"
)

// An owner keeps so many changes, and none that it saw grow older than 7 days; what was there when it began is as old as it is.
func TestPast_Note(t *testing.T) {
	var p past
	const day = 24 * time.Hour
	for _, x := range []struct {
		now  time.Duration
		last Revision
		old  Revision
	}{
		{0, 100, 0}, {10 * time.Second, 150, 0}, {time.Hour, 200, 0}, {3 * day, 300, 0}, {7 * day, 400, 0}, {7*day + 1, 400, 100},
		{7*day + time.Hour, 400, 100}, {7*day + time.Hour + 1, 400, 200}, {9 * day, 500, 200}, {11 * day, 600, 300}, {30 * day, 600, 600},
	} {
		if old := p.note(x.now, x.last); old != x.old {
			t.Errorf("at %v: older than 7 days are those up to %d, want %d", x.now, old, x.old)
		}
	}
	if p = nil; p.note(0, 1) != 0 {
		t.Error("a new owner knows of old changes")
	}
	for now := time.Duration(0); now < 60*day; now += trimTick {
		p.note(now, 1)
	}
	if most := int(trimAge/trimMark) + 2; len(p) > most {
		t.Errorf("an owner remembers %d marks, want %d at most", len(p), most)
	}
}

// What is kept is bounded by number, with a tenth more before it is cut, and by age.
func TestTrimTo(t *testing.T) {
	for _, x := range []struct{ oldest, last, old, keep, want Revision }{
		{1, 0, 0, 100, 1}, {1, 110, 0, 100, 1}, {1, 111, 0, 100, 12}, {1, 50, 20, 100, 21}, {1, 200, 20, 100, 101}, {1, 200, 150, 100, 151},
		{40, 50, 20, 100, 40}, {1, 50, 50, 100, 51},
	} {
		if got := trimTo(x.oldest, x.last, x.old, x.keep); got != x.want {
			t.Errorf("of %d to %d, old up to %d, %d to keep: from %d on, want %d", x.oldest, x.last, x.old, x.keep, got, x.want)
		}
	}
}
