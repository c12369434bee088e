package fsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Names come out in order whatever came and went, from any one on, and blocks stay short.
func TestOrdered_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	var o ordered
	in := map[lockKey]*lock{}
	for round := range 20_000 {
		k := lockKey{fsmpb.Lock_Kind(rng.IntN(3)), fmt.Sprint(rng.IntN(3000))}
		grow := round%8000 < 5000
		if l := in[k]; l == nil && grow {
			in[k] = &lock{key: k}
			o.add(in[k])
		} else if l != nil && !grow {
			o.remove(l)
			delete(in, k)
		}
		if round%1000 != 0 {
			continue
		}
		var want, got []lockKey
		for _, x := range slices.SortedFunc(maps.Keys(in), lockKey.compare) {
			if x.compare(k) >= 0 {
				want = append(want, x)
			}
		}
		for l := range o.from(k) {
			got = append(got, l.key)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(lockKey{})); diff != "" {
			t.Fatalf("round %d, from %v (-want +got):\n%s", round, k, diff)
		}
		for _, b := range o.blocks {
			if len(b) == 0 || len(b) > 2*blockLen {
				t.Fatalf("a block of %d", len(b))
			}
		}
	}
}

// A page begins after any name and ends with the prefix or the limit.
func TestMachine_Locks_Pages(t *testing.T) {
	s := owned(t)
	names := []string{"a", "a/", "a/1", "a/2", "a/2/x", "b", "b/1"}
	id := s.session("n")
	for i, name := range names {
		s.do(lockOp(id, uint64(i+1), name))
	}
	for _, prefix := range []string{"", "a", "a/", "a/2", "b/", "c", "0"} {
		for _, after := range append([]string{"", "a/0", "a/9", "zz"}, names...) {
			for _, limit := range []int{0, 1, 3} {
				var want, got []string
				for _, n := range names {
					if strings.HasPrefix(n, prefix) && n > after && (limit == 0 || len(want) < limit) {
						want = append(want, n)
					}
				}
				for _, l := range s.m.Locks(fsmpb.Lock_LOCK, prefix, after, limit) {
					got = append(got, l.Name)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("Locks(%q, %q, %d) (-want +got):\n%s", prefix, after, limit, diff)
				}
			}
		}
	}
}
