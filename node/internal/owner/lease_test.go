package owner

import (
	"sync"
	"testing"
	"time"
)

// A confirmation is worth a lease from its start, whenever it ended (lease).
func TestLeaseUntil(t *testing.T) {
	if got := LeaseUntil(1000, 300); got != 1300 {
		t.Errorf("LeaseUntil(1000, 300): got %d, want 1300", got)
	}
}

// A lease is trusted before its deadline, not at it, and never once it ended.
func TestGood(t *testing.T) {
	for _, c := range []struct {
		word int64
		now  time.Duration
		want bool
	}{
		{0, 0, false},
		{100, 0, true},
		{100, 99, true},
		{100, 100, false},
		{100, 101, false},
		{ended, 0, false},
		{ended, -5, false},
	} {
		if got := Good(c.word, c.now); got != c.want {
			t.Errorf("Good(%d, %d): got %v, want %v", c.word, c.now, got, c.want)
		}
	}
}

// An ended or lapsed token is never revived, and a deadline never moves back (lease).
func TestExtend(t *testing.T) {
	for _, c := range []struct {
		name       string
		word       int64
		now, until time.Duration
		want       int64
	}{
		{"Forward", 100, 50, 200, 200},
		{"Backward", 100, 50, 80, 100},
		{"AtTheLastInstant", 100, 99, 200, 200},
		{"Lapsed", 100, 100, 200, ended},
		{"LapsedLongAgo", 100, 900, 200, ended},
		{"Ended", ended, 50, 200, ended},
		{"NeverStarted", 0, 0, 200, ended},
	} {
		if got := Extend(c.word, c.now, c.until); got != c.want {
			t.Errorf("%s: Extend(%d, %d, %d): got %d, want %d", c.name, c.word, c.now, c.until, got, c.want)
		}
	}
}

// The lease in use follows the same rules, and lapsing is as final as ending: an extension that comes too late ends it.
func TestLease_Extend(t *testing.T) {
	var l Lease
	if l.Good(0) || l.Extend(0, 100) {
		t.Error("the zero lease is good, want lapsed")
	}
	l = Lease{}
	l.Start(100)
	if !l.Good(99) || l.Deadline() != 100 {
		t.Errorf("started until 100: good at 99 %v, deadline %d", l.Good(99), l.Deadline())
	}
	if !l.Extend(50, 200) || !l.Extend(60, 150) || l.Deadline() != 200 {
		t.Errorf("extended to 200 and then to 150: deadline %d, want 200", l.Deadline())
	}
	if l.Extend(200, 300) || l.Good(0) || l.Deadline() >= 0 {
		t.Errorf("extended after it lapsed: good %v, deadline %d, want ended", l.Good(0), l.Deadline())
	}
}

// End is final.
func TestLease_End(t *testing.T) {
	var l Lease
	l.Start(100)
	l.End()
	if l.Good(0) || l.Extend(0, 200) || l.Good(0) || l.Deadline() >= 0 {
		t.Errorf("ended: good %v, deadline %d", l.Good(0), l.Deadline())
	}
}

// Extensions in flight on many goroutines neither revive a lease that ended meanwhile nor move its deadline back.
func TestLease_Extend_RacingEnd(t *testing.T) {
	const workers, rounds = 4, 2000
	for range 20 {
		var l Lease
		l.Start(1)
		over := make(chan struct{})
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() { // stops after its rounds
				var seen time.Duration
				for i := range rounds {
					select {
					case <-over:
						if l.Extend(0, time.Hour) || l.Good(0) {
							t.Error("revived")
							return
						}
						continue
					default:
					}
					if l.Extend(0, time.Duration(2+i*workers+w)) {
						d := l.Deadline()
						if d >= 0 && d < seen {
							t.Errorf("deadline moved back from %d to %d", seen, d)
							return
						}
						seen = max(seen, d)
					}
				}
			})
		}
		wg.Go(func() { // stops at once
			for l.Deadline() < rounds/2 {
				if l.Deadline() < 0 {
					t.Error("ended by nobody")
					break
				}
			}
			l.End()
			close(over)
		})
		wg.Wait()
		if l.Good(0) {
			t.Error("good after its end")
		}
	}
}

func BenchmarkLease_Good(b *testing.B) {
	var l Lease
	l.Start(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if !l.Good(time.Minute) {
			b.Fatal("not good")
		}
	}
}

func BenchmarkLease_Extend(b *testing.B) {
	var l Lease
	l.Start(time.Hour)
	b.ReportAllocs()
	until := time.Hour
	for b.Loop() {
		until++
		if !l.Extend(time.Minute, until) {
			b.Fatal("not good")
		}
	}
}

// A lease that was seen lapsed stays so, whatever clock reading an extension in flight has.
func TestLease_Good_SeenLapsedIsFinal(t *testing.T) {
	var l Lease
	l.Start(100)
	if !l.Good(99) || l.Good(100) {
		t.Fatal("the lease does not lapse at its deadline")
	}
	if l.Extend(99, 200) || l.Good(99) {
		t.Error("a lapsed lease was extended by one who read the clock before")
	}
}
