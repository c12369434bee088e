package node

import (
	"sync"
	"testing"
)

// A gate lets nobody in once it is closed, and close waits for those inside; concurrent callers see the same.
func TestGate_Close(t *testing.T) {
	g := newGate()
	var inside, after sync.WaitGroup
	entered, leave := make(chan struct{}), make(chan struct{})
	for range 10 {
		inside.Go(func() {
			if !g.enter() {
				t.Error("an open gate refused")
				return
			}
			entered <- struct{}{}
			<-leave
			g.leave()
		})
	}
	for range 10 {
		<-entered
	}
	closed := make(chan struct{})
	after.Go(func() {
		g.close()
		close(closed)
	})
	for g.enter() { // until close has begun
		g.leave()
	}
	select {
	case <-closed:
		t.Fatal("close returned while callers were inside")
	default:
	}
	close(leave)
	inside.Wait()
	after.Wait()
	if g.enter() {
		t.Error("a closed gate let a caller in")
	}
	g.close() // again: returns at once
}

// A sequence's low-water mark is the last number below which all are finished, in whatever order they finish.
func TestSequence_Low(t *testing.T) {
	var q sequence
	for range 4 {
		q.begin()
	}
	for _, step := range []struct{ finish, low uint64 }{{2, 0}, {4, 0}, {1, 2}, {3, 4}} {
		q.finish(step.finish)
		if q.low != step.low {
			t.Errorf("after finishing %d: low = %d, want %d", step.finish, q.low, step.low)
		}
	}
	if seq, low := q.begin(); seq != 5 || low != 4 {
		t.Errorf("begin: got %d, %d, want 5, 4", seq, low)
	}
}
