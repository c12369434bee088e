package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// terms records what callbacks of Lead did, and fails when two run at once under a trusted leadership, or tokens do not rise.
type terms struct {
	mu      sync.Mutex // guards the fields below
	running int
	last    node.Token
	count   int
}

func (x *terms) start(t *testing.T, what string, l *node.Leadership) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count++
	if x.running++; x.running > 1 {
		t.Errorf("%s: two callbacks run at once", what)
	}
	if l.Token() <= x.last {
		t.Errorf("%s: token %d after %d", what, l.Token(), x.last)
	}
	x.last = l.Token()
}

func (x *terms) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running--
}

// Five candidates are killed, paused and cut off at random while one after the other leads and writes a register in the cluster, guarded by its leadership, and one outside, with
// its token. By local clocks no two lead at once; the tokens of each register rise, and each has one writer: case 34.
func TestCase034_OneLeaderUnderFaults(t *testing.T) {
	bubble(t, 5, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		res := c.Resource()
		var mu sync.Mutex
		type write struct {
			rev   node.Revision
			token node.Token
			at    int
		}
		var writes []write
		campaigns, leads := 0, 0
		candidate := func(i int) {
			for ctx.Err() == nil {
				n := c.Node(i)
				if n == nil {
					time.Sleep(200 * time.Millisecond)
					continue
				}
				_ = n.ShardAt(1).Lead(ctx, "e", func(ctx context.Context, l *node.Leadership) error {
					c.Track("e", l)
					mu.Lock()
					campaigns, leads = campaigns+1, i
					mu.Unlock()
					s := n.ShardAt(1).Guarded(l)
					for ctx.Err() == nil {
						if err := res.Write(l.Token(), fmt.Sprint(i)); err != nil {
							return err
						}
						if rev, err := s.Put(ctx, "register", fmt.Appendf(nil, "%d by %d", l.Token(), i), nil); err == nil {
							mu.Lock()
							writes = append(writes, write{rev, l.Token(), i})
							mu.Unlock()
						}
						time.Sleep(50 * time.Millisecond)
					}
					return ctx.Err()
				})
			}
		}
		var wg sync.WaitGroup
		for i := range c.Len() {
			wg.Go(func() { candidate(i) }) // stops when cancelled
		}
		rng := rand.New(rand.NewPCG(1, 34))
		for round := range nightly(8, 120) {
			i := rng.IntN(c.Len())
			hold := time.Second + time.Duration(rng.Int64N(int64(8*time.Second)))
			if round%2 == 0 { // whoever leads, for longer than its session lasts
				mu.Lock()
				i, hold = leads, hold/2+5*time.Second
				mu.Unlock()
			}
			switch rng.IntN(4) {
			case 0:
				c.Kill(i)
				time.Sleep(hold)
				c.Restart(i)
			case 1:
				c.Pause(i)
				time.Sleep(hold)
				c.Resume(i)
			case 2:
				c.Isolate(i)
				time.Sleep(hold)
				c.Heal()
			case 3:
				c.Partition([]int{i, (i + 1) % c.Len()}, others(c, i, (i+1)%c.Len()))
				time.Sleep(hold)
				c.Heal()
			}
			time.Sleep(2 * time.Second)
		}
		cancel()
		wg.Wait()
		slices.SortFunc(writes, func(a, b write) int { return int(a.rev) - int(b.rev) })
		by := map[node.Token]int{}
		for k, w := range writes {
			if k > 0 && w.token < writes[k-1].token {
				t.Errorf("register at revision %d: token %d after %d", w.rev, w.token, writes[k-1].token)
			}
			if at, ok := by[w.token]; ok && at != w.at {
				t.Errorf("token %d was used by nodes %d and %d", w.token, at, w.at)
			}
			by[w.token] = w.at
		}
		accepted, refused := res.Counts()
		t.Logf("%d terms, %d that wrote, %d guarded writes, %d accepted and %d refused outside", campaigns, len(by), len(writes), accepted, refused)
		if len(by) < 3 || len(writes) < 100 {
			t.Errorf("%d leaders wrote %d times: the test needs more", len(by), len(writes))
		}
	})
}

// The next leader starts only after the callback of the one before has returned, which takes its time after its context has ended: when Lead is cancelled, and when its node is
// shut down, which gives the callback DrainTimeout and lets the leadership run out if that was too short. A run of RunOnce is alike: case 35.
func TestCase035_LeadReleasesAfterItsCallback(t *testing.T) {
	for _, end := range []string{"Cancel", "Shutdown", "ShutdownTooShort"} {
		t.Run(end, func(t *testing.T) {
			const linger = 2 * time.Second
			drain := func(_ int, c *node.Config) {
				if end == "ShutdownTooShort" {
					c.DrainTimeout = linger / 2
				}
			}
			bubble(t, 3, &nodetest.Options{Config: drain}, func(t *testing.T, c *nodetest.Cluster) {
				i := others(c, c.AwaitOwner(1))[0]
				x := &terms{}
				began := make(chan struct{}, 2)
				fn := func(ctx context.Context, l *node.Leadership) error {
					x.start(t, end, l)
					defer x.stop()
					began <- struct{}{}
					<-ctx.Done()
					time.Sleep(linger)
					return ctx.Err()
				}
				var wg sync.WaitGroup
				first, cancel := context.WithCancel(t.Context())
				defer cancel()
				second, stop := context.WithCancel(t.Context())
				n := c.Node(i)
				wg.Go(func() { _ = n.ShardAt(1).Lead(first, "e", fn) }) // stops when cancelled, or with its node
				<-began
				wg.Go(func() { // stops when cancelled
					_ = c.Node(others(c, i)[0]).ShardAt(1).Lead(second, "e", fn)
				})
				time.Sleep(time.Second)
				var ran atomic.Int64
				ended := time.Now()
				if end != "Cancel" {
					run, other, running := n.ShardAt(1), c.Node(others(c, i)[1]).ShardAt(1), make(chan struct{})
					wg.Go(func() { // stops when its node is shut down
						_, _ = run.RunOnce(t.Context(), "job", nil, func(ctx context.Context, _ *node.Run) ([]byte, error) {
							close(running)
							<-ctx.Done()
							time.Sleep(linger)
							ran.Store(int64(time.Since(ended)))
							return nil, ctx.Err()
						})
					})
					<-running
					wg.Go(func() { // stops when it ran the job
						if _, err := other.RunOnce(within(t, time.Minute), "job", nil, func(context.Context, *node.Run) ([]byte, error) {
							if took := time.Since(ended); ran.Load() == 0 || int64(took) < ran.Load() {
								t.Errorf("the job runs again after %v, and the run before ended after %v", took, time.Duration(ran.Load()))
							}
							return nil, nil
						}); err != nil {
							t.Errorf("the job: %v", err)
						}
					})
				}
				if end == "Cancel" {
					cancel()
				} else {
					c.Shutdown(i)
				}
				<-began
				if took := time.Since(ended); took < linger || took > 10*time.Second {
					t.Errorf("the next leads %v after the end, want the %v that the callback takes and no more than a TTL and more", took, linger)
				}
				stop()
				wg.Wait()
			})
		})
	}
}

// Callbacks of Lead are strictly paired: none starts for a campaign that was cancelled before it was won, whenever that was, one at a time of an election, and each that
// starts returns before the next starts anywhere: case 37.
func TestCase037_CallbacksArePaired(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		rng := rand.New(rand.NewPCG(1, 37))
		x := &terms{}
		s, other := c.Node(c.AwaitOwner(1)).ShardAt(1), c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		holder, err := s.Campaign(t.Context(), "held", nil)
		if err != nil {
			t.Fatal(err)
		}
		err = other.Lead(within(t, time.Second), "held", func(context.Context, *node.Leadership) error {
			t.Error("a callback of a campaign that was never won")
			return nil
		})
		wantErr(t, "lead behind a leader", err, context.DeadlineExceeded)
		if err := holder.Check(); err != nil {
			t.Error(err)
		}
		began := 0
		for range nightly(100, 3000) { // cancelled about when they are won
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(10*time.Millisecond))))
			ran := false
			err := other.Lead(ctx, "e", func(ctx context.Context, l *node.Leadership) error {
				x.start(t, "cancelled about when it was won", l)
				defer x.stop()
				ran = true
				if ctx.Err() != nil && context.Cause(ctx) == nil {
					t.Error("an ended context without a cause")
				}
				<-ctx.Done()
				return ctx.Err()
			})
			cancel()
			wantErr(t, "lead", err, context.DeadlineExceeded)
			if ran {
				began++
			}
		}
		if began == 0 || x.running != 0 {
			t.Errorf("%d callbacks began and %d run: the test needs some, and none to run", began, x.running)
		}
		l, err := s.Campaign(within(t, 2*time.Second), "e", nil)
		if err != nil {
			t.Fatalf("after all were cancelled: %v", err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		runs := 0
		if err := other.Lead(t.Context(), "e", func(ctx context.Context, l *node.Leadership) error { // after losing
			x.start(t, "after a loss", l)
			defer x.stop()
			if runs++; runs == 3 {
				return nil
			}
			if err := s.ForceRelease(t.Context(), "e", l.Token()); err != nil {
				t.Errorf("force release: %v", err)
			}
			<-ctx.Done()
			wantErr(t, "cause of a lost leadership", context.Cause(ctx), node.ErrLost)
			return nil
		}); err != nil || runs != 3 {
			t.Errorf("lead: got %v after %d runs, want nil after 3", err, runs)
		}
	})
}

// A lock, permit, leadership or run that an operator ends by name and token is lost for its holder within a round trip; the holder takes it anew at once in the same session, and that is a
// real grant, with a larger token, which others see; a session is none of these: case 40.
func TestCase040_ForcedReleaseIsHeard(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for i := range c.Len() {
			s, other := c.Node(i).ShardAt(1), c.Node((i+1)%c.Len()).ShardAt(1)
			for _, k := range kindsOfHolds() {
				h, err := k.acquire(t.Context(), s, "x")
				if err != nil {
					t.Fatalf("%s: %v", k.name, err)
				}
				time.Sleep(50 * time.Millisecond) // the holder listens
				err = other.ForceRelease(t.Context(), "x", h.Token())
				if !k.fenced {
					wantErr(t, k.name+": force release", err, node.ErrNotHeld)
					if err := h.release(t.Context()); err != nil {
						t.Errorf("%s: release: %v", k.name, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: force release: %v", k.name, err)
				}
				time.Sleep(5 * time.Millisecond)
				wantErr(t, k.name+": check a round trip later", h.Check(), node.ErrLost)
				wantErr(t, k.name+": cause", context.Cause(h.Context(t.Context())), node.ErrLost)
				again, err := k.acquire(within(t, time.Second), s, "x")
				if err != nil {
					t.Fatalf("%s again at once: %v", k.name, err)
				}
				if again.Token() <= h.Token() {
					t.Errorf("%s: token %d after %d", k.name, again.Token(), h.Token())
				}
				if h.copied != nil {
					wantErr(t, k.name+": release of what was taken away", h.release(t.Context()), node.ErrLost)
				}
				if k.name == "Leadership" {
					for l := range other.Observe(t.Context(), "x") {
						if l.Token != again.Token() || l.Member.ID != c.Node(i).ID() {
							t.Errorf("others see leader %+v, want token %d", l, again.Token())
						}
						break
					}
				}
				if _, err := other.Guarded(again.Hold).Put(t.Context(), "k", nil, nil); err != nil || again.Check() != nil {
					t.Errorf("%s: the new grant: guarded put %v, check %v", k.name, err, again.Check())
				}
				wantErr(t, k.name+": force release by the old token", other.ForceRelease(t.Context(), "x", h.Token()), node.ErrNotHeld)
				if err := again.release(t.Context()); err != nil {
					t.Errorf("%s: release: %v", k.name, err)
				}
			}
		}
	})
}

// A leader's token is the same for its whole term, however often it proclaims another value and campaigns again, which waits like anybody's campaign; every
// proclaimed value is seen, or a later one: case 41.
func TestCase041_TokenIsConstantForATerm(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		s := c.Node(i).ShardAt(1)
		l, err := s.Campaign(t.Context(), "e", []byte("0"))
		if err != nil {
			t.Fatal(err)
		}
		c.Track("e", l)
		token := l.Token()
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 1000)
		var wg sync.WaitGroup
		wg.Go(func() { // stops when cancelled
			for x, err := range c.Node(c.AwaitOwner(1)).ShardAt(1).Observe(ctx, "e") {
				if err != nil {
					return
				}
				if x.Token != token {
					t.Errorf("leader's token: got %d, want %d", x.Token, token)
				}
				seen <- string(x.Value)
			}
		})
		for n := range 100 {
			if err := l.Proclaim(t.Context(), fmt.Append(nil, n+1)); err != nil {
				t.Fatalf("proclaim %d: %v", n+1, err)
			}
		}
		_, err = s.Campaign(within(t, time.Second), "e", []byte("again"))
		wantErr(t, "campaign while leading", err, context.DeadlineExceeded)
		if l.Token() != token || l.Check() != nil {
			t.Errorf("token %d, check %v, want %d and nil", l.Token(), l.Check(), token)
		}
		wantErr(t, "a value too long", l.Proclaim(t.Context(), make([]byte, 64<<10+1)), node.ErrTooLarge)
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		close(seen)
		last, values := "", 0
		for v := range seen {
			last, values = v, values+1
		}
		if last != "100" || values < 2 {
			t.Errorf("the last of %d values seen: got %q, want 100", values, last)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Proclaim(t.Context(), nil); !errors.Is(err, node.ErrNotHeld) {
			t.Errorf("proclaim after it: got %v, want ErrNotHeld", err)
		}
	})
}
