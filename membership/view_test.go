package membership

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMembership_Watch(t *testing.T) {
	// The current members come first, then each change, until the context ends.
	t.Run("CurrentThenChanges", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen := make(chan Member, 100)
			go func() { // stops when ctx ends; the range below waits for it
				defer close(seen)
				for m := range sites[0].Watch(ctx) {
					seen <- m
				}
			}()
			synctest.Wait()
			var ids []string
			for range 3 {
				ids = append(ids, (<-seen).ID)
			}
			if slices.Sort(ids); !slices.Equal(ids, []string{uuid(1), uuid(2), uuid(3)}) {
				t.Errorf("current members: got %v", ids)
			}
			if err := sites[1].Update(func(r *Record) { r.Zone = "z" }); err != nil {
				t.Fatal(err)
			}
			if m := <-seen; m.ID != uuid(2) || m.Zone != "z" {
				t.Errorf("change: got %+v", m)
			}
			if err := sites[0].Update(func(r *Record) { r.Zone = "own" }); err != nil {
				t.Fatal(err)
			}
			if m := <-seen; m.ID != uuid(1) || m.Zone != "own" {
				t.Errorf("own change: got %+v", m)
			}
			sites[2].kill()
			var states []State
			for m := range seen {
				if states = append(states, m.State); m.State == Failed {
					cancel()
				}
			}
			if want := []State{Suspect, Failed}; !slices.Equal(states, want) {
				t.Errorf("states of the dead one: got %v, want %v", states, want)
			}
		})
	})
	// A reader that pauses gets, for each member, only the latest state; nothing waits for it meanwhile.
	t.Run("SlowReaderGetsLatest", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			var got []Member
			paused := false
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for m := range sites[0].Watch(ctx) {
				if !paused { // the first member was read; change all of them meanwhile
					paused = true
					for i := range 50 {
						for _, s := range sites {
							if err := s.Update(func(r *Record) { r.Founder = i }); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(10 * time.Second)
					continue
				}
				got = append(got, m)
			}
			slices.SortFunc(got, byID)
			if len(got) != 3 {
				t.Fatalf("got %d members, want each of 3 once: %v", len(got), got)
			}
			for i, m := range got {
				if m.ID != uuid(i+1) || m.Founder != 49 {
					t.Errorf("got %s with founder %d, want %s with 49", m.ID, m.Founder, uuid(i+1))
				}
			}
		})
	})
	// Close ends all watches.
	t.Run("EndsWithClose", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.start(record(1, addrOf(1)), nil)
			ended := make(chan struct{})
			go func() { // stops at Close; the receive below waits for it
				defer close(ended)
				for range s.Watch(t.Context()) {
				}
			}()
			synctest.Wait()
			_ = s.Close()
			<-ended
		})
	})
}

// A change between getting the channel and waiting for it is not missed.
func TestMembership_Changed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.start(record(1, addrOf(1)), nil)
		changed := s.Changed()
		if err := s.Update(func(r *Record) { r.Zone = "z" }); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		default:
			t.Error("the channel is open after a change")
		}
		select {
		case <-s.Changed():
			t.Error("the new channel is closed without a change")
		default:
		}
	})
}
