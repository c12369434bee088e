package raft

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// What dragonboat panics over is an error here: a replica whose log is gone, one that runs already or gives no start to its group, and an initial
// group with one node twice or a replica 0 (cases 105, 109).
func TestHost_Start(t *testing.T) {
	id, other := uuid.NewString(), uuid.NewString()
	h, _, end := openHost(t, t.TempDir(), id, false)
	defer end()
	for name, x := range map[string]struct {
		shard, replica uint64
		members        map[uint64]string
		known          bool
		want           error // nil: any
	}{
		"LogIsGone":   {2, 1, map[uint64]string{1: id}, true, ErrDataMissing},
		"RunsAlready": {1, 1, map[uint64]string{1: id}, true, nil},
		"NoMembers":   {3, 1, nil, false, nil},
		"NodeTwice":   {4, 1, map[uint64]string{1: id, 2: id}, false, nil},
		"Replica0":    {5, 0, map[uint64]string{0: id, 1: other}, false, nil},
	} {
		err := h.Start(x.shard, x.replica, x.members, x.known)
		if err == nil || x.want != nil && !errors.Is(err, x.want) {
			t.Errorf("%s: got %v, want an error: %v", name, err, x.want)
		}
	}
	awaitLeader(t, h) // the first replica is well
}

// Calls of all kinds that race Close, which is called from several goroutines, end with errors of the documented kinds and panic nowhere;
// after Close nothing reaches dragonboat (cases 105, 151).
func TestHost_Close(t *testing.T) {
	id := uuid.NewString()
	h, _, end := openHost(t, t.TempDir(), id, false)
	awaitLeader(t, h)
	var calls, closes sync.WaitGroup
	for range 8 {
		calls.Go(func() { // stops when the host is closed
			for {
				err := h.Propose(t.Context(), 1, []byte{1}, time.Second)
				if err != nil && !errors.Is(err, ErrNotAppended) && !errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("propose: got %v", err)
				}
				if err := h.Read(t.Context(), 1, time.Second); errors.Is(err, ErrClosed) {
					return
				}
				h.View(1)
				h.Leader(1)
			}
		})
	}
	for range 3 {
		closes.Go(func() { // stops when the host is closed
			if err := h.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	closes.Wait()
	calls.Wait()
	end()
	for what, err := range map[string]error{
		"start":    h.Start(2, 1, map[uint64]string{1: id}, false),
		"propose":  h.Propose(t.Context(), 1, nil, time.Second),
		"read":     h.Read(t.Context(), 1, time.Second),
		"transfer": h.Transfer(1, 1),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: got %v, want ErrClosed", what, err)
		}
	}
	if err := h.Stop(1); err != nil {
		t.Errorf("stop after Close: %v", err)
	}
}
