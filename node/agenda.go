package node

import (
	"container/heap"
	"math"
	"time"
)

// never is later than every instant.
const never = time.Duration(math.MaxInt64)

// timing is when something is to be looked at next, and its place in its agenda.
type timing struct {
	at    time.Duration
	place int // from 1 on; 0: it is in none
}

func (t *timing) timed() *timing { return t }

// agenda orders things by when they are to be looked at: whoever works on it looks at what is due and at nothing else, however many
// there are. It is not safe for concurrent use.
type agenda[T interface{ timed() *timing }] struct{ h timeHeap[T] }

// put enters x, or moves it.
func (a *agenda[T]) put(x T, at time.Duration) {
	t := x.timed()
	t.at = at
	if t.place == 0 {
		heap.Push(&a.h, x)
		return
	}
	heap.Fix(&a.h, t.place-1)
}

func (a *agenda[T]) remove(x T) {
	if t := x.timed(); t.place != 0 {
		heap.Remove(&a.h, t.place-1)
	}
}

// due removes and returns what comes first, if it is to be looked at by now.
func (a *agenda[T]) due(now time.Duration) (x T, ok bool) {
	if a.next() > now {
		return x, false
	}
	return heap.Pop(&a.h).(T), true
}

// next is when the first is to be looked at, never if there is none.
func (a *agenda[T]) next() time.Duration {
	if len(a.h) == 0 {
		return never
	}
	return a.h[0].timed().at
}

// timeHeap is an agenda's order, by the rules of container/heap.
type timeHeap[T interface{ timed() *timing }] []T

func (h timeHeap[T]) Len() int           { return len(h) }
func (h timeHeap[T]) Less(i, j int) bool { return h[i].timed().at < h[j].timed().at }

func (h timeHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timed().place, h[j].timed().place = i+1, j+1
}

func (h *timeHeap[T]) Push(x any) {
	*h = append(*h, x.(T))
	(*h)[len(*h)-1].timed().place = len(*h)
}

func (h *timeHeap[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = *new(T)
	*h = (*h)[:last]
	x.timed().place = 0
	return x
}
