package nodetest

import (
	"time"
)

// A state is what one replica is at, at one instant.
type state struct {
	i             int
	applied, hash uint64
}

// states are the shard's replicas on nodes that are up and sound.
func (k *checker) states(shard int) []state {
	var all []state
	for _, m := range k.c.all() {
		n, inside := m.look()
		if n == nil || n.Err() != nil {
			continue
		}
		if applied, hash, ok := inside.State(shard); ok {
			all = append(all, state{m.i, applied, hash})
		}
	}
	return all
}

// differ returns two replicas that have applied the same entries and differ.
func differ(all []state) (a, b state, found bool) {
	first := map[uint64]state{}
	for _, s := range all {
		f, ok := first[s.applied]
		if !ok {
			first[s.applied] = s
		} else if f.hash != s.hash {
			return f, s, true
		}
	}
	return a, b, false
}

// checkStates: replicas that have applied the same entries are equal. The index and the hash are not read at one instant, so a
// difference counts only if it is still there after everything came to rest.
func (k *checker) checkStates() {
	for s := range k.c.o.Shards + 1 {
		a, b, found := differ(k.states(s))
		if !found {
			continue
		}
		time.Sleep(time.Nanosecond) // returns when nothing computes
		if x, y, still := differ(k.states(s)); still && x == a && y == b {
			k.failf("the replicas of shard %d on nodes %d and %d differ at index %d: %x and %x", s, a.i, b.i, a.applied, a.hash, b.hash)
		}
	}
}

// awaitStates: healthy replicas come to the same index, and are equal there.
func (k *checker) awaitStates() {
	for s := range k.c.o.Shards + 1 {
		for began := time.Now(); !level(k.states(s)); time.Sleep(look) {
			if time.Since(began) > converge {
				k.failf("the replicas of shard %d are not level after %v: %v", s, converge, k.states(s))
				break
			}
		}
	}
	k.checkStates()
}

// level says whether all replicas have applied the same entries.
func level(all []state) bool {
	for _, s := range all {
		if s.applied != all[0].applied {
			return false
		}
	}
	return true
}
