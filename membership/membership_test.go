package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMembership_Members(t *testing.T) {
	// Five nodes that know one seed see each other, with equal records, sorted by ID.
	t.Run("FiveConverge", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			start := time.Now()
			sites := w.startAll(5)
			t.Log("five nodes see each other after", time.Since(start))
			var want []Member
			for _, s := range sites {
				want = append(want, Member{Record: s.Self(), State: Alive})
			}
			for _, s := range sites {
				if diff := cmp.Diff(want, s.Members()); diff != "" {
					t.Errorf("members of %s (-want +got):\n%s", s.Self().Name, diff)
				}
			}
		})
	})
	// What is returned is a copy: changing it changes nothing.
	t.Run("Copies", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(2, func(c *Config) { c.Self.Tags = map[string]string{"k": "v"} })
			for _, m := range sites[0].Members() {
				m.Tags["k"] = "changed"
			}
			sites[0].Self().Tags["k"] = "changed"
			for _, m := range sites[0].Members() {
				if m.Tags["k"] != "v" {
					t.Errorf("tag of %s: got %q, want v", m.Name, m.Tags["k"])
				}
			}
		})
	})
	// Members of another cluster are shown, with their cluster; the node decides (case 79).
	t.Run("ForeignClusterIsVisible", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.start(record(1, addrOf(1)), nil, func(c *Config) { c.Self.Cluster = uuid(100) })
			b := w.start(record(2, addrOf(2)), []string{addrOf(1)}, func(c *Config) { c.Self.Cluster = uuid(200) })
			w.until(5*time.Second, "they see each other", func() bool { return converged([]*site{a, b}) })
			if m, _ := a.Member(uuid(2)); m.Cluster != uuid(200) {
				t.Errorf("cluster of 2 seen by 1: got %q, want %q", m.Cluster, uuid(200))
			}
		})
	})
}

func TestMembership_Update(t *testing.T) {
	// A change spreads to all within a second, whole.
	t.Run("Spreads", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(5)
			err := sites[2].Update(func(r *Record) { r.Cluster, r.Tags, r.Runs = uuid(9), map[string]string{"a": "b"}, true })
			if err != nil {
				t.Fatal(err)
			}
			want := sites[2].Self()
			took := w.until(time.Second, "all have the change", func() bool {
				return !slices.ContainsFunc(sites, func(s *site) bool {
					m, _ := s.Member(want.ID)
					return !cmp.Equal(m.Record, want)
				})
			})
			t.Log("change spread in", took)
		})
	})
	// 512 bytes are accepted, 513 are refused and change nothing, also at Open (case 74).
	t.Run("LimitOf512Bytes", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.start(record(1, addrOf(1)), nil)
			for _, size := range []int{MaxRecord - 1, MaxRecord, MaxRecord + 1} {
				before := s.Self()
				r := padded(t, record(1, addrOf(1)), size)
				err := s.Update(func(x *Record) { *x = r })
				if fits := size <= MaxRecord; fits != (err == nil) || !fits && !errors.Is(err, ErrTooLarge) {
					t.Errorf("update to %d bytes: got %v", size, err)
				}
				want := r
				if err != nil {
					want = before
				}
				if diff := cmp.Diff(want, s.Self()); diff != "" {
					t.Errorf("after %d bytes (-want +got):\n%s", size, diff)
				}
			}
			if _, err := Open(Config{Self: padded(t, record(2, addrOf(2)), MaxRecord+1), Transport: s.end}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("open with %d bytes: got %v, want ErrTooLarge", MaxRecord+1, err)
			}
		})
	})
	// A record of 512 bytes still reaches the others, and so does its node's farewell.
	t.Run("FullRecordTravels", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			full := padded(t, sites[1].Self(), MaxRecord)
			if err := sites[1].Update(func(r *Record) { *r = full }); err != nil {
				t.Fatal(err)
			}
			w.until(time.Second, "the full record arrives", func() bool {
				m, _ := sites[2].Member(full.ID)
				return cmp.Equal(m.Record, full)
			})
			if err := sites[1].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.until(time.Second, "it has left", func() bool { return stateOf(sites[2], full.ID) == Left })
		})
	})
	// Identity is fixed, and bad fields are refused.
	t.Run("Refused", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.start(record(1, addrOf(1)), nil)
			before := s.Self()
			for name, f := range map[string]func(*Record){
				"id":          func(r *Record) { r.ID = uuid(2) },
				"incarnation": func(r *Record) { r.Incarnation++ },
				"nonce":       func(r *Record) { r.Nonce++ },
				"addr":        func(r *Record) { r.Addr = "nowhere" },
			} {
				if err := s.Update(f); !errors.Is(err, ErrInvalid) {
					t.Errorf("change of %s: got %v, want ErrInvalid", name, err)
				}
			}
			if diff := cmp.Diff(before, s.Self()); diff != "" {
				t.Errorf("record changed (-want +got):\n%s", diff)
			}
		})
	})
}

func TestMembership_Leave(t *testing.T) {
	// Everybody sees a node that left as Left, never as Failed, also when packets are lost (case 72).
	t.Run("SeenAsLeftByAll", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(6)
			for i := 1; i <= 6; i++ {
				for j := i + 1; j <= 6; j++ {
					w.net.Loss(addrOf(i), addrOf(j), 0.1)
				}
			}
			start := time.Now()
			if err := sites[5].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Log("leave took", time.Since(start))
			_ = sites[5].end.Close()
			w.until(30*time.Second, "all see it left", func() bool {
				return !slices.ContainsFunc(sites, func(s *site) bool { return stateOf(s, uuid(6)) != Left })
			})
		})
	})
	// A node that missed the farewell, but was told that the member is gone, hears the farewell from others.
	t.Run("MissedFarewellIsMadeUpFor", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(4)
			w.net.Isolate(addrOf(4))
			if err := sites[2].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = sites[2].end.Close()
			w.until(30*time.Second, "4 thinks that 3 failed", func() bool { return stateOf(sites[3], uuid(3)) == Failed })
			w.net.Rejoin(addrOf(4))
			w.until(40*time.Second, "4 knows that 3 left", func() bool { return stateOf(sites[3], uuid(3)) == Left })
		})
	})
	// After Leave all calls answer at once, and a second Leave says ErrClosed (case 71).
	t.Run("IsFinal", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.start(record(1, addrOf(1)), nil)
			if err := s.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Leave(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("second leave: got %v, want ErrClosed", err)
			}
			if err := s.Update(func(r *Record) { r.Runs = true }); !errors.Is(err, ErrClosed) {
				t.Errorf("update: got %v, want ErrClosed", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if got := stateOf(s, uuid(1)); got != Left {
				t.Errorf("own state: got %v, want left", got)
			}
		})
	})
	// A leave whose context ends closes at once and says so.
	t.Run("ContextEnds", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(2)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			if err := sites[0].Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a deadline", err)
			}
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if !sites[0].Membership.closed() {
				t.Error("not closed")
			}
		})
	})
}

func TestMembership_Close(t *testing.T) {
	// Close and Open in one process, 20 times, at the same address, always work (case 71).
	t.Run("OpenAgain", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.start(record(1, addrOf(1)), nil)
			r := record(2, addrOf(2))
			for range 20 {
				b := w.start(r, []string{addrOf(1)})
				w.until(5*time.Second, "they see each other", func() bool { return converged([]*site{a, b}) })
				b.kill()
				r = r.again(r.Addr)
			}
		})
	})
	// The transport stays open, a second Membership on it works, and both Close calls are quick.
	t.Run("LeavesTransportOpen", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.start(record(1, addrOf(1)), nil), w.start(record(2, addrOf(2)), []string{addrOf(1)})
			w.until(5*time.Second, "they see each other", func() bool { return converged([]*site{a, b}) })
			start := time.Now()
			if err := errors.Join(b.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("close took %v", took)
			}
			m, err := Open(Config{Self: b.Self().again(addrOf(2)), Join: []string{addrOf(1)}, Transport: b.end})
			if err != nil {
				t.Fatal(err)
			}
			c := &site{Membership: m, end: b.end}
			w.all = append(w.all, c)
			w.until(5*time.Second, "they see each other again", func() bool { return converged([]*site{a, c}) })
		})
	})
	// Close is bounded while the transport lets nothing through, and ends waits.
	t.Run("BoundedWhileCutOff", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.start(record(1, addrOf(1)), []string{addrOf(2)})
			w.net.Hold(addrOf(1))
			changed := s.Changed()
			start := time.Now()
			_ = s.Close()
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("close took %v", took)
			}
			<-changed
			_ = s.end.Close()
		})
	})
}

// A configuration with several mistakes is refused with all of them.
func TestOpen_Invalid(t *testing.T) {
	_, err := Open(Config{
		Self:          Record{ID: "x", Addr: "here", Founder: -1},
		Join:          []string{"host-without-port"},
		OldSecrets:    [][]byte{[]byte("short")},
		ProbeInterval: time.Second,
		ProbeTimeout:  time.Second,
	})
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, want := range []string{"ID:", "Addr:", "Founder:", "Transport:", "Join:", "OldSecrets:", "OldSecrets[0]:", "ProbeTimeout:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not mentioned in %v", want, err)
		}
	}
}

// padded fills r's tags until it takes size bytes.
func padded(t *testing.T, r Record, size int) Record {
	t.Helper()
	r.Tags = map[string]string{}
	for i := 0; ; i++ {
		b, err := encode(claim{Record: r, revision: 1})
		if err != nil {
			t.Fatal(err)
		}
		missing := size - len(b)
		if missing == 0 {
			return r
		}
		if missing > 150 {
			r.Tags[fmt.Sprint("k", i)] = strings.Repeat("v", 90)
			continue
		}
		r.Name += strings.Repeat("n", missing)
		if size > MaxRecord {
			return r // encode would refuse it
		}
	}
}
