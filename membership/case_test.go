package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// fat is a record of node i that takes all but a few of the bytes there are, in n tags.
func fat(t *testing.T, i, n int) Record {
	t.Helper()
	r := record(i, addrOf(i))
	r.Cluster, r.Zone, r.Tags = uuid(99), "zone", map[string]string{}
	for k := range n {
		r.Tags[fmt.Sprint("k", k)] = ""
	}
	for k := 0; ; k = (k + 1) % n {
		next := r.clone()
		next.Tags[fmt.Sprint("k", k)] += "v"
		if _, err := encode(claim{Record: next, revision: 1 << 60}); err != nil || len(next.Tags["k0"]) >= maxText {
			break
		}
		r = next
	}
	if b, err := encode(claim{Record: r, revision: 1}); err != nil || len(b) < MaxRecord-MaxRecord/2 {
		t.Fatalf("a record of %d bytes, %v", len(b), err)
	}
	return r
}

// A narrow transport loses datagrams above an MTU, as networks do that do not fragment.
type narrow struct {
	*memnet.Endpoint
	mtu     int
	largest *atomic.Int64 // datagram that was to be sent
	lost    *atomic.Int64
}

func (n narrow) WriteTo(b []byte, addr string) error {
	for old := n.largest.Load(); int64(len(b)) > old && !n.largest.CompareAndSwap(old, int64(len(b))); old = n.largest.Load() {
	}
	if len(b) > n.mtu {
		n.lost.Add(1)
		return nil
	}
	return n.Endpoint.WriteTo(b, addr)
}

var _ transport.ContextAccepter = narrow{}

// Records at their limit never make a datagram that exceeds an Ethernet's, with encryption or without; and where only 576 bytes pass, all
// members still come to see each other's whole and newest record, and nobody is taken for failed: what does not fit goes by stream. No
// user broadcast carries anything (case 75).
func TestCase075_DatagramsFit(t *testing.T) {
	for _, mtu := range []int{1400, 576} {
		for _, secret := range [][]byte{nil, []byte("a secret of some length")} {
			t.Run(fmt.Sprintf("mtu %d, secret %v", mtu, secret != nil), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					var largest, lost atomic.Int64
					var sites []*site
					for i := 1; i <= 6; i++ {
						sites = append(sites, w.start(fat(t, i, 1+5*i), []string{addrOf(1)}, func(c *Config) {
							c.Secret = secret
							c.Transport = narrow{c.Transport.(*memnet.Endpoint), mtu, &largest, &lost}
						}))
					}
					w.until(time.Minute, "all see each other", func() bool { return converged(sites) })
					for _, s := range sites {
						if err := s.Update(func(r *Record) { r.Tags["k0"] = strings.Repeat("w", len(r.Tags["k0"])) }); err != nil {
							t.Fatal(err)
						}
					}
					w.until(time.Minute, "all see the changes", func() bool {
						for _, s := range sites {
							for _, other := range sites {
								if m, _ := s.Member(other.Self().ID); m.State != Alive || !cmp.Equal(m.Record, other.Self()) {
									return false
								}
							}
						}
						return true
					})
					if got := largest.Load(); got > 1400 {
						t.Errorf("a datagram of %d bytes, want at most 1400", got)
					}
					if narrow := mtu < 1400; narrow != (lost.Load() > 0) {
						t.Errorf("%d datagrams were too large for %d bytes", lost.Load(), mtu)
					}
					for _, s := range sites {
						if b := (delegate{s.table}).GetBroadcasts(0, maxPacket); len(b) > 0 {
							t.Errorf("%d user broadcasts", len(b))
						}
					}
				})
			})
		}
	}
}

// What a node adds to a full exchange has the same bound with 1 as with 5000 members, of which any number left, and tells another what was
// put in (case 75).
func TestCase075_ExchangeIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 5))
	sizes := []int{1, 2, maxFarewells, maxFarewells + 1, 127, 128, 255, 256, 300, 5000}
	for range nightly(1, 100) {
		sizes = append(sizes, 1+rng.IntN(nightly(1000, 5000)))
	}
	thick := fat(t, 2, 2)
	for _, n := range sizes {
		from, to := told(t), told(t)
		want := 0
		for i := range n {
			r := thick
			r.ID, r.Nonce = uuid(i+10), uint64(i)
			b := coded(t, claim{Record: r, revision: 1})
			for _, tab := range []*table{from, to} {
				if tab.vet(r.ID, b) == nil {
					tab.heard(r.ID, b)
				}
			}
			if rng.IntN(4) == 0 && i < maxMembers-1 {
				hear(t, from, claim{Record: r, revision: 2, leaving: true})
				from.gone(r.ID)
				to.gone(r.ID)
				want++
			}
		}
		want = min(want, maxFarewells)
		state := (delegate{from}).LocalState(true)
		if limit := maxFarewells * (2 + MaxRecord); len(state) > limit {
			t.Errorf("%d members: %d bytes, want at most %d", n, len(state), limit)
		}
		(delegate{to}).MergeRemoteState(state, true)
		got := 0
		for _, m := range to.members() {
			if m.State == Left {
				got++
				if was, _ := from.member(m.ID); was.State != Left || !cmp.Equal(was, m) {
					t.Errorf("%d members: %s is left, was %v", n, m.ID, was.State)
				}
			}
		}
		if got != want {
			t.Errorf("%d members: %d are heard to have left, want %d", n, got, want)
		}
	}
}

// A node that never knew B gets nothing but word of B's farewell, in any order with all that B ever said; once B's newest record arrives,
// that is B's record, whole, and B is alive (case 80).
func TestCase080_FarewellOfUnknown(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	first, second := fat(t, 2, 3), fat(t, 2, 5).again(addrOf(7))
	newest := claim{Record: second, revision: 2}
	alive := func(c claim) func(*table) {
		return func(tab *table) {
			if b := coded(t, c); tab.vet(c.ID, b) == nil {
				tab.heard(c.ID, b)
			}
		}
	}
	farewell := claim{Record: first, revision: 3, leaving: true}
	gone := func(tab *table) { tab.gone(first.ID) }
	said := []func(*table){
		alive(claim{Record: first, revision: 1}), alive(claim{Record: first, revision: 2}), alive(farewell), gone, gone,
		func(tab *table) { tab.departed(coded(t, farewell)) }, func(tab *table) { tab.silent(first.ID) },
		alive(claim{Record: second, revision: 1}), alive(newest),
	}
	for range 1000 {
		tab := told(t)
		for range rng.IntN(4) { // nothing but the farewell
			[]func(*table){gone, said[5]}[rng.IntN(2)](tab)
		}
		if _, ok := tab.member(first.ID); ok {
			t.Fatal("a farewell alone made a member")
		}
		order := append(slices.Clone(said), said[rng.IntN(len(said))], said[rng.IntN(len(said))]) // some twice
		rng.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		for _, say := range order[:rng.IntN(len(order)+1)] { // and some never
			say(tab)
		}
		alive(newest)(tab)
		tab.answered(first.ID)
		m, _ := tab.member(first.ID)
		if d := cmp.Diff(second, m.Record); d != "" || m.State != Alive {
			t.Fatalf("%v, (-want +got):\n%s", m.State, d)
		}
	}
}

// The same with the gossip library between, on a network that loses and reorders: a node that came after B left knows no B, and when B
// returns all have its whole record (case 80).
func TestCase080_UnknownReturns(t *testing.T) {
	for seed := range nightly(2, 30) {
		inWorld(t, func(t *testing.T, w *world) {
			w.net = memnet.New(memnet.Options{Seed: uint64(seed), Delay: 5 * time.Millisecond, Jitter: 50 * time.Millisecond})
			sites := w.startAll(3)
			for i := 1; i <= 5; i++ {
				for k := 1; k < i; k++ {
					w.net.Loss(addrOf(i), addrOf(k), 0.1)
				}
			}
			b := sites[2]
			if err := b.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.kill()
			late := w.start(record(4, addrOf(4)), []string{addrOf(1), addrOf(2)})
			w.until(30*time.Second, "the late one is in", func() bool { return converged([]*site{sites[0], sites[1], late}) })
			time.Sleep(20 * time.Second)
			if m, ok := late.Member(uuid(3)); ok {
				t.Errorf("the late one made %+v of a farewell", m)
			}
			r := fat(t, 3, 4)
			r.Incarnation, r.Nonce, r.Addr = 2, 77, addrOf(5)
			sites[2] = w.start(r, []string{addrOf(1)})
			w.until(time.Minute, "B is back everywhere", func() bool {
				for _, s := range append(sites, late) {
					if m, _ := s.Member(uuid(3)); m.State != Alive || !cmp.Equal(m.Record, r) {
						return false
					}
				}
				return true
			})
		})
	}
}
