package fsm

import "slices"

// roll lists things in the order in which they came. What has gone is left out when it is read, and dropped once it is
// the half of the list: so to leave costs a constant, in the mean, however long the list is.
type roll[T interface{ isGone() bool }] struct {
	list []T
	gone int
}

func (r *roll[T]) add(x T) { r.list = append(r.list, x) }

// left says that n more of the listed are gone. Those that are already gone but of which it was not yet said may be
// dropped with them.
func (r *roll[T]) left(n int) {
	r.gone += n
	if r.gone*2 < len(r.list) {
		return
	}
	live := make([]T, 0, r.len())
	r.all(func(x T) bool { live = append(live, x); return true })
	r.gone -= len(r.list) - len(live)
	r.list = live
}

// len counts those of which it was not said that they are gone.
func (r *roll[T]) len() int { return len(r.list) - r.gone }

// all calls yield for those that are not gone, until it returns false.
func (r *roll[T]) all(yield func(T) bool) {
	for _, x := range r.list {
		if !x.isGone() && !yield(x) {
			return
		}
	}
}

// sort orders a roll of which nothing is gone.
func (r *roll[T]) sort(compare func(a, b T) int) { slices.SortFunc(r.list, compare) }
