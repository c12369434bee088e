package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node/fence"
)

// wantStale fails the test unless err says that token was refused on resource because seen had been seen.
func wantStale(t *testing.T, err error, resource string, token, seen uint64) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Fatalf("token %d after %d on %q: got %v, want a *StaleError", token, seen, resource, err)
	}
	if diff := cmp.Diff(&fence.StaleError{Resource: resource, Token: token, Seen: seen}, stale); diff != "" {
		t.Errorf("what the refusal says: %s", diff)
	}
}

func mustCheck(t *testing.T, g *fence.Guard, resource string, token uint64) {
	t.Helper()
	if err := g.Check(resource, token); err != nil {
		t.Fatalf("token %d on %q: got %v, want it accepted", token, resource, err)
	}
}

// A smaller token is refused, with what was seen; an equal one is accepted, a larger one is remembered: case 15.
func TestGuard_Check_Order(t *testing.T) {
	var g fence.Guard
	for _, c := range []struct {
		token, seen uint64 // seen 0: accepted
	}{
		{33, 0}, {33, 0}, {34, 0}, {33, 34}, {34, 0}, {1, 34}, {fence.MaxToken, 0}, {fence.MaxToken - 1, fence.MaxToken}, {fence.MaxToken, 0},
	} {
		err := g.Check("balance", c.token)
		if c.seen != 0 {
			wantStale(t, err, "balance", c.token, c.seen)
		} else if err != nil {
			t.Fatalf("token %d: got %v, want it accepted", c.token, err)
		}
	}
	if err := g.Check("balance", 7); !strings.Contains(err.Error(), fmt.Sprintf(`"balance" rejected (token 7 < %d)`, uint64(fence.MaxToken))) {
		t.Errorf("message: got %q, want the resource and both tokens in it", err)
	}
}

// Resources are apart: a large token of one says nothing about another.
func TestGuard_Check_ResourcesApart(t *testing.T) {
	var g fence.Guard
	mustCheck(t, &g, "a", 9)
	mustCheck(t, &g, "b", 2)
	wantStale(t, g.Check("a", 8), "a", 8, 9)
	wantStale(t, g.Check("b", 1), "b", 1, 2)
}

// What is no token or no name is refused as such and changes nothing.
func TestGuard_Check_Invalid(t *testing.T) {
	var g fence.Guard
	mustCheck(t, &g, "a", 2)
	for _, c := range []struct {
		resource string
		token    uint64
	}{{"a", 0}, {"a", fence.MaxToken + 1}, {"a", 1<<64 - 1}, {"", 3}, {strings.Repeat("x", fence.MaxResource+1), 3}} {
		ran := false
		err := g.Do(t.Context(), c.resource, c.token, func(context.Context) error { ran = true; return nil })
		for _, err := range []error{err, g.Check(c.resource, c.token), fence.Compare(c.resource, c.token, 2)} {
			if !errors.Is(err, fence.ErrInvalid) || errors.Is(err, fence.ErrStale) {
				t.Errorf("token %d on a name of %d bytes: got %v, want ErrInvalid", c.token, len(c.resource), err)
			}
		}
		if ran {
			t.Errorf("token %d on a name of %d bytes: fn ran", c.token, len(c.resource))
		}
	}
	mustCheck(t, &g, strings.Repeat("x", fence.MaxResource), 1)
	mustCheck(t, &g, "a", 2)
}

// Do runs fn for equal and larger tokens only, and hands its error and ctx through.
func TestGuard_Do_RunsOnlyIfCurrent(t *testing.T) {
	type key struct{}
	var g fence.Guard
	full := errors.New("disk full")
	ctx := context.WithValue(t.Context(), key{}, "ours")
	var ran []uint64
	do := func(token uint64, result error) error {
		return g.Do(ctx, "r", token, func(ctx context.Context) error {
			if ctx.Value(key{}) != "ours" {
				t.Error("fn got another ctx")
			}
			ran = append(ran, token)
			return result
		})
	}
	for _, token := range []uint64{5, 5} {
		if err := do(token, nil); err != nil {
			t.Errorf("token %d: got %v, want nil", token, err)
		}
	}
	if err := do(6, full); !errors.Is(err, full) {
		t.Errorf("got %v, want fn's error", err)
	}
	wantStale(t, do(5, nil), "r", 5, 6) // the failed write counts: its token exists
	if diff := cmp.Diff([]uint64{5, 5, 6}, ran); diff != "" {
		t.Errorf("fn ran for these tokens: %s", diff)
	}
}

// While fn runs, a newer holder waits, so that its write comes last; whoever is older and waits is refused, not let in first.
func TestGuard_Do_NothingSlipsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Guard
		var mu sync.Mutex
		var log []string
		write := func(token uint64, d time.Duration) error {
			return g.Do(t.Context(), "r", token, func(context.Context) error {
				time.Sleep(d)
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprint("write ", token))
				return nil
			})
		}
		var all sync.WaitGroup
		var waited, checked, newest error
		all.Go(func() { // stops when its writes are done
			if err := write(33, time.Minute); err != nil {
				t.Errorf("first writer: got %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() { waited = write(33, 0) })                              // stops when refused
		all.Go(func() { checked = g.Check("r", 33) })                         // stops when refused
		all.Go(func() { time.Sleep(time.Nanosecond); newest = write(34, 0) }) // stops when its write is done
		time.Sleep(time.Second)
		synctest.Wait()
		begun := time.Now()
		wantStale(t, write(33, 0), "r", 33, 34)
		wantStale(t, g.Check("r", 33), "r", 33, 34)
		if took := time.Since(begun); took != 0 {
			t.Errorf("a stale token had to wait %v for its refusal", took)
		}
		if err := g.Check("r", 35); err != nil {
			t.Errorf("check of 35: got %v", err)
		}
		if took := time.Since(begun); took != 59*time.Second {
			t.Errorf("check of a newer token returned after %v, want the rest of the minute that fn runs", took)
		}
		all.Wait()
		wantStale(t, waited, "r", 33, 35)
		wantStale(t, checked, "r", 33, 35)
		wantStale(t, newest, "r", 34, 35)
		if diff := cmp.Diff([]string{"write 33"}, log); diff != "" {
			t.Errorf("writes: %s", diff)
		}
	})
}

// Waiting ends with ctx and its cause; the token it showed counts all the same.
func TestGuard_Do_WaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Guard
		free := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { // stops when free is closed
			g.Do(t.Context(), "r", 33, func(context.Context) error { <-free; return nil })
		})
		synctest.Wait()
		bored := errors.New("bored")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, bored)
		defer cancel()
		err := g.Do(ctx, "r", 34, func(context.Context) error { t.Error("fn ran"); return nil })
		if !errors.Is(err, bored) {
			t.Errorf("got %v, want the cause of ctx", err)
		}
		wantStale(t, g.Check("r", 33), "r", 33, 34)
		close(free)
		all.Wait()
		err = g.Do(ctx, "r", 34, func(context.Context) error { t.Error("fn ran"); return nil })
		if !errors.Is(err, bored) {
			t.Errorf("of a free resource, but after ctx: got %v, want the cause of ctx", err)
		}
	})
}

// A panic of fn goes to its caller and frees the resource.
func TestGuard_Do_PanicFrees(t *testing.T) {
	var g fence.Guard
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		g.Do(t.Context(), "r", 1, func(context.Context) error { panic("oops") })
	}()
	if err := g.Do(t.Context(), "r", 1, func(context.Context) error { return nil }); err != nil {
		t.Errorf("after the panic: got %v, want nil", err)
	}
}

// Above Limit unknown resources are refused and known ones served; Forget makes room, and forgets.
func TestGuard_Limit(t *testing.T) {
	g := fence.Guard{Limit: 2}
	mustCheck(t, &g, "a", 5)
	mustCheck(t, &g, "b", 5)
	if err := g.Check("c", 5); !errors.Is(err, fence.ErrFull) {
		t.Fatalf("third resource: got %v, want ErrFull", err)
	}
	mustCheck(t, &g, "a", 6)
	g.Forget("b")
	mustCheck(t, &g, "c", 5)
	if got := []uint64{g.Seen("a"), g.Seen("b"), g.Seen("c")}; !cmp.Equal(got, []uint64{6, 0, 5}) {
		t.Errorf("seen of a, b, c: got %v, want 6, 0, 5", got)
	}
}

// Under many concurrent writers, what was written last in a resource has never a smaller token than what was before it.
func TestGuard_Do_TokensNeverFall(t *testing.T) {
	var g fence.Guard
	const writers, tokens = 8, 300
	lists := map[string]*[]uint64{"a": {}, "b": {}} // each list is touched only inside Do of its name
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { // stops when its tokens are used up
			for i := range tokens {
				token := uint64(i + 1 + w%3)
				for k, list := range lists {
					err := g.Do(t.Context(), k, token, func(context.Context) error { *list = append(*list, token); return nil })
					if err != nil && !errors.Is(err, fence.ErrStale) {
						t.Errorf("token %d: %v", token, err)
					}
				}
			}
		})
	}
	all.Wait()
	for k, list := range lists {
		last := uint64(0)
		for i, token := range *list {
			if token < last {
				t.Fatalf("%s: write %d has token %d after %d", k, i, token, last)
			}
			last = token
		}
		if last != tokens+2 {
			t.Errorf("%s: last token written: got %d, want %d", k, last, tokens+2)
		}
	}
}

// pausedHolders gives out grants by mint, one after the other. Each holder is paused before its write until the next one has
// written. It returns nil if every holder in turn got its write through, and every late write was refused.
func pausedHolders(mint func() uint64) error {
	var g fence.Guard
	var late uint64
	for grant := range 100 {
		token := mint()
		if err := g.Check("r", token); err != nil {
			return fmt.Errorf("grant %d: the holder is refused: %w", grant, err)
		}
		if late != 0 {
			if err := g.Check("r", late); !errors.Is(err, fence.ErrStale) {
				return fmt.Errorf("grant %d: the late write with token %d after %d was let in (%v)", grant, late, token, err)
			}
		}
		late = token
	}
	return nil
}

// The guard protects by the order of the tokens and nothing else: with rising ones each late write is refused, and with
// random ones instead the same story goes wrong, as with the "fencing" by unordered lock ids: case 15.
func TestGuard_Check_NeedsRisingTokens(t *testing.T) {
	var rising uint64
	if err := pausedHolders(func() uint64 { rising += 1 + rand.Uint64N(1000); return rising }); err != nil {
		t.Errorf("with rising tokens: %v", err)
	}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 15))
		if err := pausedHolders(func() uint64 { return 1 + random.Uint64N(fence.MaxToken) }); err == nil {
			t.Errorf("with random tokens (seed %d) nobody noticed", seed)
		}
	}
}

func BenchmarkGuard_Check(b *testing.B) {
	for _, resources := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint("resources=", resources), func(b *testing.B) {
			var g fence.Guard
			names := make([]string, resources)
			for i := range names {
				names[i] = fmt.Sprint("customer-", i)
				g.Check(names[i], 1)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(resources); pb.Next(); i++ {
					if g.Check(names[i%resources], 1) != nil {
						b.Error("refused")
					}
				}
			})
		})
	}
}

func BenchmarkGuard_Check_Stale(b *testing.B) {
	var g fence.Guard
	g.Check("r", 2)
	b.ReportAllocs()
	for b.Loop() {
		if g.Check("r", 1) == nil {
			b.Fatal("accepted")
		}
	}
}
