package node

import "sync"

// sequence numbers a session's operations and knows below which all are answered.
type sequence struct {
	mu   sync.Mutex // guards the fields below
	last uint64
	low  uint64              // all up to it are answered
	done map[uint64]struct{} // answered, above low
}

// begin takes the next number.
func (q *sequence) begin() (seq, low uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	return q.last, q.low
}

// finish notes that seq is answered and will not be sent again. It may be called more than once.
func (q *sequence) finish(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq <= q.low {
		return
	}
	if q.done == nil {
		q.done = map[uint64]struct{}{}
	}
	q.done[seq] = struct{}{}
	for {
		if _, ok := q.done[q.low+1]; !ok {
			return
		}
		q.low++
		delete(q.done, q.low)
	}
}
