package membership

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/transport/memnet"
)

func TestMembership_Failure(t *testing.T) {
	// A node that dies is noticed by all others within 5 seconds, and is suspect before it is failed.
	t.Run("NoticedWithinSeconds", func(t *testing.T) {
		for _, n := range []int{2, 3, 5, 9} {
			inWorld(t, func(t *testing.T, w *world) {
				sites := w.startAll(n)
				time.Sleep(time.Duration(n) * 130 * time.Millisecond) // some phase of the probes
				victim := sites[n-1].Self().ID
				sites[n-1].kill()
				rest := sites[:n-1]
				start := time.Now()
				suspected := w.until(5*time.Second, "one suspects it", func() bool {
					return slices.ContainsFunc(rest, func(s *site) bool { return stateOf(s, victim) == Suspect })
				})
				w.until(5*time.Second, "all gave it up", func() bool {
					return !slices.ContainsFunc(rest, func(s *site) bool { return stateOf(s, victim) != Failed })
				})
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("%d nodes: took %v", n, took)
				}
				t.Logf("%d nodes: suspected after %v, given up by all after %v", n, suspected, time.Since(start))
				if !addrKnown(rest[0], sites[n-1].Self()) {
					t.Error("the last address of the failed member is forgotten")
				}
			})
		}
	})
	// A node that stands still for a moment is suspected, answers, and is alive again without ever having failed.
	t.Run("SuspicionIsRefuted", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			w.net.Hold(addrOf(3))
			w.until(5*time.Second, "it is suspected", func() bool { return stateOf(sites[0], uuid(3)) == Suspect })
			w.net.Resume(addrOf(3))
			w.until(5*time.Second, "it is alive again", func() bool { return converged(sites) })
		})
	})
	// One node that cannot be heard makes no other node look failed (case 73).
	t.Run("SickNodeSpreadsNoDoubt", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(7)
			for i := 1; i <= 6; i++ {
				w.net.Cut(addrOf(i), addrOf(7)) // it sends, but receives nothing
			}
			end := time.Now().Add(time.Minute)
			for time.Now().Before(end) {
				for _, s := range sites[:6] {
					for _, m := range s.Members() {
						if m.State == Failed && m.ID != uuid(7) {
							t.Fatalf("%s thinks that %s failed", s.Self().Name, m.Name)
						}
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	})
}

func TestMembership_Restart(t *testing.T) {
	// A node that was killed and restarts at once at another address is accepted at once, by all (case 69).
	t.Run("NewAddressAtOnce", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(5)
			sites[4].kill()
			back := w.start(sites[4].Self().again("10.0.1.5:7400"), []string{addrOf(1)})
			sites[4] = back
			took := w.until(2*time.Second, "all know the new address", func() bool { return converged(sites) })
			t.Log("all know the new address after", took)
			time.Sleep(time.Minute)
			if !converged(sites) {
				t.Errorf("it did not stay: 1 sees %v", states(sites[0]))
			}
		})
	})
	// The same after it was given up, and after a clean leave (case 69).
	t.Run("NewAddressAfterFailureOrLeave", func(t *testing.T) {
		for _, leave := range []bool{false, true} {
			inWorld(t, func(t *testing.T, w *world) {
				sites := w.startAll(4)
				want := Failed
				if leave {
					want = Left
					_ = sites[3].Leave(t.Context())
				}
				sites[3].kill()
				w.until(6*time.Second, "it is gone", func() bool { return stateOf(sites[1], uuid(4)) == want })
				sites[3] = w.start(sites[3].Self().again("10.0.1.4:7400"), []string{addrOf(2)})
				w.until(2*time.Second, "all know the new address", func() bool { return converged(sites) })
			})
		}
	})
	// All nodes restart one after the other, each at the address that another one had before: nobody is mistaken for another.
	t.Run("AddressesSwapped", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(4)
			var records []Record
			for _, s := range sites {
				records = append(records, s.Self())
			}
			for _, s := range sites {
				s.kill()
			}
			seeds := []string{addrOf(1), addrOf(2), addrOf(3), addrOf(4)}
			for i := range sites {
				sites[i] = w.start(records[i].again(addrOf((i+1)%4+1)), seeds)
				time.Sleep(300 * time.Millisecond)
			}
			w.until(15*time.Second, "all see each other", func() bool { return converged(sites) })
		})
	})
	// A rolling restart of three nodes to new addresses, where each one knows only the old ones, keeps them together.
	t.Run("RollingToNewAddresses", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			for i := range sites {
				sites[i].kill()
				sites[i] = w.start(sites[i].Self().again("10.0.2."+addrOf(i + 1)[7:]), []string{sites[(i+1)%3].Self().Addr})
				w.until(15*time.Second, "all see each other", func() bool { return converged(sites) })
			}
		})
	})
	// An old record that is still around never replaces a newer one, even when the newer node has failed.
	t.Run("OldRecordStaysOld", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3) // the third goes on while its successor starts elsewhere
			next := w.start(sites[2].Self().again("10.0.1.3:7400"), []string{addrOf(1)})
			w.until(2*time.Second, "the successor is known", func() bool {
				return addrKnown(sites[0], next.Self()) && addrKnown(sites[1], next.Self())
			})
			next.kill()
			time.Sleep(2 * time.Minute) // the old one gossips all the while
			for _, s := range sites[:2] {
				if m, _ := s.Member(uuid(3)); m.Incarnation != 2 {
					t.Errorf("%s went back to incarnation %d", s.Self().Name, m.Incarnation)
				}
			}
		})
	})
}

func TestMembership_Conflict(t *testing.T) {
	// Two processes with one ID and one incarnation, a copied directory: third nodes keep the one that they knew and spread no
	// word of the other, which is told, again and again; the first is told only once it meets the other itself.
	t.Run("CopyIsTold", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			var mu sync.Mutex
			told := map[uint64][]Record{}
			tell := func(c *Config) {
				nonce := c.Self.Nonce
				c.OnConflict = func(r Record) {
					mu.Lock()
					defer mu.Unlock()
					told[nonce] = append(told[nonce], r)
				}
			}
			sites := w.startAll(3, tell)
			first := sites[2].Self()
			twin := first
			twin.Nonce, twin.Addr = 77, "10.0.1.3:7400"
			w.start(twin, []string{addrOf(1)}, tell)
			count := func(nonce uint64) int {
				mu.Lock()
				defer mu.Unlock()
				return len(told[nonce])
			}
			w.until(5*time.Second, "the copy is told", func() bool { return count(77) > 0 })
			time.Sleep(time.Minute)
			if a, b := count(77), count(first.Nonce); a < 2 || a > 8 || b != 0 {
				t.Errorf("in a minute the copy was told %d times and the first %d times, want 2 to 8 and none", a, b)
			}
			if got := told[77][0]; got.Nonce != first.Nonce || got.Addr != addrOf(3) {
				t.Errorf("the copy was told of %+v", got)
			}
			for _, s := range sites[:2] {
				if !addrKnown(s, first) || stateOf(s, first.ID) != Alive {
					t.Errorf("%s took the copy for the original", s.Self().Name)
				}
			}
			other := twin
			other.Nonce, other.Addr = 78, "10.0.1.4:7400"
			w.start(other, []string{addrOf(3)}, tell)
			w.until(5*time.Second, "both are told", func() bool { return count(78) > 0 && count(first.Nonce) > 0 })
		})
	})
	// A node that is alive while a later start of the same ID shows up is told; the later start is not.
	t.Run("PredecessorIsTold", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			old, young := make(chan Record, 10), make(chan Record, 10)
			a := w.start(record(1, addrOf(1)), nil, func(c *Config) { c.OnConflict = func(r Record) { old <- r } })
			w.start(a.Self().again(addrOf(2)), []string{addrOf(1)}, func(c *Config) { c.OnConflict = func(r Record) { young <- r } })
			if r := <-old; r.Incarnation != 2 || r.Addr != addrOf(2) {
				t.Errorf("told of %+v", r)
			}
			time.Sleep(time.Minute)
			if len(young) != 0 {
				t.Errorf("the later start was told of %+v", <-young)
			}
		})
	})
}

func TestMembership_Split(t *testing.T) {
	// A split that lasts longer than the gossip library remembers the dead heals by itself (case 77).
	t.Run("HealsByItself", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(6)
			each := func(f func(a, b string)) {
				for i := 1; i <= 3; i++ {
					for j := 4; j <= 6; j++ {
						f(addrOf(i), addrOf(j))
					}
				}
			}
			each(w.net.Drop)
			w.until(20*time.Second, "both sides gave up the other", func() bool {
				return stateOf(sites[0], uuid(6)) == Failed && stateOf(sites[5], uuid(1)) == Failed
			})
			time.Sleep(10 * time.Minute)
			each(w.net.Heal)
			took := w.until(30*time.Second, "all see each other", func() bool { return converged(sites) })
			t.Log("healed after", took)
		})
	})
	// A node that was cut off from all looks for them every second, so it is back at once.
	t.Run("LoneNodeIsBackAtOnce", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3)
			for i := 1; i <= 2; i++ {
				w.net.Partition(addrOf(i), addrOf(3))
			}
			w.until(20*time.Second, "it is alone", func() bool { return sites[2].alone() })
			time.Sleep(5 * time.Minute)
			w.net.HealAll()
			took := w.until(3*time.Second, "all see each other", func() bool { return converged(sites) })
			t.Log("back after", took)
		})
	})
	// Nodes that know no seed find each other through the addresses that Peers returns.
	t.Run("PeersAreTried", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.start(record(1, addrOf(1)), nil)
			b := w.start(record(2, addrOf(2)), nil, func(c *Config) {
				c.Peers = func() []string { return []string{"garbage", addrOf(1), addrOf(2)} }
			})
			w.until(5*time.Second, "they see each other", func() bool { return converged([]*site{a, b}) })
		})
	})
	// Heavy loss delays gossip but does not stop it.
	t.Run("LossyNetwork", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.net = memnet.New(memnet.Options{Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
			sites := w.startAll(4)
			for i := 1; i <= 4; i++ {
				for j := i + 1; j <= 4; j++ {
					w.net.Loss(addrOf(i), addrOf(j), 0.3)
				}
			}
			if err := sites[0].Update(func(r *Record) { r.Zone = "z" }); err != nil {
				t.Fatal(err)
			}
			w.until(30*time.Second, "the change is everywhere", func() bool {
				return !slices.ContainsFunc(sites, func(s *site) bool { m, _ := s.Member(uuid(1)); return m.Zone != "z" })
			})
		})
	})
}
