package membership

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestMembership_Join(t *testing.T) {
	// A DNS name stands for all its addresses: those where nobody listens, and the own one, do not matter, and names are
	// looked up again and again, since they may change.
	t.Run("NameWithSeveralAddresses", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			var mu sync.Mutex
			known := []string{"10.0.0.99", "10.0.0.2"}
			names := func(c *Config) {
				c.Lookup = func(_ context.Context, host string) ([]string, error) {
					mu.Lock()
					defer mu.Unlock()
					if host != "app.internal" {
						return nil, errors.New("no such host: " + host)
					}
					return slices.Clone(known), nil
				}
			}
			seeds := []string{"app.internal:7400", "other.internal:7400"}
			b := w.start(record(2, addrOf(2)), seeds, names)
			time.Sleep(10 * time.Second)
			a := w.start(record(1, addrOf(1)), nil, names)
			time.Sleep(10 * time.Second)
			if len(b.Members()) != 1 {
				t.Fatal("found somebody without an address")
			}
			mu.Lock()
			known = append(known, "10.0.0.1")
			mu.Unlock()
			took := w.until(3*time.Second, "they see each other", func() bool { return converged([]*site{a, b}) })
			t.Log("found after", took)
		})
	})
	// A lookup that hangs does not keep the other seeds from being tried for long, nor Close from returning.
	t.Run("HangingLookup", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.start(record(1, addrOf(1)), nil)
			b := w.start(record(2, addrOf(2)), []string{"hang.internal:7400", addrOf(1)}, func(c *Config) {
				c.Lookup = func(ctx context.Context, _ string) ([]string, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			})
			w.until(2*lookupTimeout, "they see each other", func() bool { return converged([]*site{a, b}) })
			start := time.Now()
			_ = b.Close()
			if took := time.Since(start); took > time.Second {
				t.Errorf("close took %v", took)
			}
		})
	})
	// Whoever starts first waits for the others, for ever: the seed may come last.
	t.Run("SeedComesLast", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			seeds := []string{addrOf(1), addrOf(2), addrOf(3)}
			c := w.start(record(3, addrOf(3)), seeds)
			time.Sleep(time.Hour)
			b := w.start(record(2, addrOf(2)), seeds)
			time.Sleep(time.Minute)
			a := w.start(record(1, addrOf(1)), seeds)
			w.until(3*time.Second, "all see each other", func() bool { return converged([]*site{a, b, c}) })
		})
	})
	// No more than some addresses are tried at one time, but all get their turn.
	t.Run("ManySeeds", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			var seeds []string
			for i := range 3 * maxTargets {
				seeds = append(seeds, "10.1.0.1:"+strconv.Itoa(1000+i))
			}
			b := w.start(record(2, addrOf(2)), append(seeds, addrOf(1)))
			a := w.start(record(1, addrOf(1)), nil)
			w.until(time.Minute, "they see each other", func() bool { return converged([]*site{a, b}) })
		})
	})
}

func TestMembership_Secret(t *testing.T) {
	old, young := []byte("the old secret of 2025"), []byte("the new secret of 2026")
	with := func(secret []byte, olds ...[]byte) func(*Config) {
		return func(c *Config) { c.Secret, c.OldSecrets = secret, olds }
	}
	// Nodes with one secret see each other, another or no secret sees nothing and is not seen (case 146).
	t.Run("SeparatesStrangers", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3, with(old))
			for i, edit := range []func(*Config){with(young), with(nil)} {
				s := w.start(record(4+i, addrOf(4+i)), []string{addrOf(1), addrOf(2)}, edit)
				time.Sleep(20 * time.Second)
				if n := len(s.Members()); n != 1 {
					t.Errorf("stranger %d sees %d members", i, n)
				}
			}
			for _, s := range sites {
				if n := len(s.Members()); n != 3 {
					t.Errorf("%s sees %d members", s.Self().Name, n)
				}
			}
		})
	})
	// A secret is replaced one node at a time, in three rounds, and no member is ever failed (case 147).
	t.Run("Rotation", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			sites := w.startAll(3, with(old))
			for _, round := range []func(*Config){with(old, young), with(young, old), with(young)} {
				for i := range sites {
					sites[i].kill()
					sites[i] = w.start(sites[i].Self().again(addrOf(i+1)), []string{addrOf(1), addrOf(2), addrOf(3)}, round)
					w.until(2*time.Second, "all see each other", func() bool { return converged(sites) })
				}
			}
		})
	})
}
