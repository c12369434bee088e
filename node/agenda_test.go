package node

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What is due comes out once each, in order, at its last time, and nothing else does.
func TestAgenda_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	var a agenda[*bound]
	in := map[*bound]time.Duration{}
	all := make([]*bound, 200)
	for i := range all {
		all[i] = &bound{}
	}
	now := time.Duration(0)
	for range 20_000 {
		x := all[rng.IntN(len(all))]
		switch rng.IntN(4) {
		case 0, 1:
			in[x] = now + time.Duration(rng.IntN(100))
			a.put(x, in[x])
		case 2:
			a.remove(x)
			delete(in, x)
		default:
			now += time.Duration(rng.IntN(5))
			last := time.Duration(0)
			for x, ok := a.due(now); ok; x, ok = a.due(now) {
				if at, there := in[x]; !there || at > now || at < last {
					t.Fatalf("at %d: got one of %d (there %v) after %d", now, at, there, last)
				}
				last = in[x]
				delete(in, x)
			}
			for _, at := range in {
				if at <= now {
					t.Fatalf("at %d: one of %d was not due", now, at)
				}
			}
		}
		next := never
		for _, at := range in {
			next = min(next, at)
		}
		if got := a.next(); got != next {
			t.Fatalf("next: got %d, want %d", got, next)
		}
	}
}
