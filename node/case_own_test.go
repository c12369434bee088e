package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// runs counts the callbacks of Own, for each shard of each node.
type runs struct {
	mu     sync.Mutex // guards the fields below
	now    map[string]int
	began  map[int][]node.Token
	causes []error
	faults []string
}

func newRuns() *runs { return &runs{now: map[string]int{}, began: map[int][]node.Token{}} }

// own returns a callback that runs until its context ends, and after a loss for linger longer.
func (r *runs) own(i int, linger time.Duration) func(context.Context, node.Ownership) error {
	return func(ctx context.Context, o node.Ownership) error {
		r.enter(i, o)
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), node.ErrLost) {
			time.Sleep(linger)
		}
		r.leave(i, o, context.Cause(ctx))
		return nil
	}
}

func (r *runs) enter(i int, o node.Ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := fmt.Sprint(i, " ", o.Shard().ID())
	if r.now[at]++; r.now[at] > 1 {
		r.faults = append(r.faults, fmt.Sprintf("node and shard %s: %d callbacks at once", at, r.now[at]))
	}
	r.began[o.Shard().ID()] = append(r.began[o.Shard().ID()], o.Token())
	if err := o.Check(); err != nil {
		r.faults = append(r.faults, fmt.Sprintf("callback began without ownership: %v", err))
	}
}

func (r *runs) leave(i int, o node.Ownership, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now[fmt.Sprint(i, " ", o.Shard().ID())]--
	r.causes = append(r.causes, cause)
}

// ownEverywhere starts Own on every node, until the returned function is called.
func ownEverywhere(t *testing.T, c *nodetest.Cluster, r *runs, linger time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range c.Len() {
		wg.Go(func() { // stops when ctx ends and the callbacks have returned
			if err := c.Node(i).Own(ctx, nil, r.own(i, linger)); !errors.Is(err, context.Canceled) {
				t.Errorf("own on node %d: got %v, want the cause of its context", i, err)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// Own runs one callback for each shard in the whole cluster, under a trusted and rising token; the next on the same node starts only
// after the former one returned, also when that outlives its ownership.
func TestNode_Own(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Shards: 2}, func(t *testing.T, c *nodetest.Cluster) {
		r := newRuns()
		stop := ownEverywhere(t, c, r, 20*time.Second)
		for range 6 {
			time.Sleep(15 * time.Second) // the shard comes back while the callback lingers
			owner := c.AwaitOwner(1)
			c.Isolate(owner)
			time.Sleep(2 * time.Second)
			c.Heal()
			c.AwaitReady()
		}
		time.Sleep(5 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.faults {
			t.Error(f)
		}
		for shard := 1; shard <= 2; shard++ {
			for k, token := range r.began[shard] {
				if k > 0 && token <= r.began[shard][k-1] {
					t.Errorf("shard %d: callbacks began under tokens %v, want them to rise", shard, r.began[shard])
				}
			}
			if len(r.began[shard]) == 0 {
				t.Errorf("shard %d: no callback ran", shard)
			}
		}
		if len(r.began[1]) < 3 {
			t.Errorf("shard 1: %d callbacks ran: the test needs some changes of owners", len(r.began[1]))
		}
		r.mu.Unlock()
		stop()
		r.mu.Lock()
		for at, n := range r.now {
			if n != 0 {
				t.Errorf("node and shard %s: %d callbacks run after Own returned", at, n)
			}
		}
	})
}

// A callback hears of a hand-over by its context, with the cause ErrHandedOver while its ownership is trusted still, and of a loss with
// the cause ErrLost.
func TestNode_Own_Causes(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		type end struct{ cause, check error }
		ends := make(chan end, 10)
		fn := func(ctx context.Context, o node.Ownership) error {
			<-ctx.Done()
			ends <- end{context.Cause(ctx), o.Check()}
			return nil
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := c.AwaitOwner(1)
		wg.Go(func() { _ = c.Node(first).Own(ctx, nil, fn) }) // stops with ctx, or when the node is shut down
		time.Sleep(time.Second)
		c.Isolate(first)
		if e := <-ends; !errors.Is(e.cause, node.ErrLost) || e.check == nil && c.Owner(1) != first {
			t.Errorf("callback of a lost ownership: cause %v, check %v, want ErrLost", e.cause, e.check)
		}
		c.Heal()
		c.AwaitReady()
		time.Sleep(30 * time.Second)
		c.AwaitOwnedBy(1, first) // the only one with an Own
		time.Sleep(time.Second)
		n := c.Node(first)
		c.Shutdown(first)
		if e := <-ends; !errors.Is(e.cause, node.ErrHandedOver) || e.check != nil {
			t.Errorf("callback of a shutdown: cause %v, check %v, want ErrHandedOver and nil", e.cause, e.check)
		}
		wantErr(t, "own of a closed node", n.Own(t.Context(), nil, fn), node.ErrClosed)
		wantErr(t, "own without a function", c.Node((first+1)%3).Own(t.Context(), nil, nil), node.ErrInvalid)
	})
}

// A callback that does not return within the drain timeout costs the shard its release: the next owner waits for the lease, and no two
// own it at once.
func TestNode_Own_DrainTimeout(t *testing.T) {
	const drain = 2 * time.Second
	o := &nodetest.Options{Config: func(_ int, c *node.Config) { c.DrainTimeout = drain }}
	bubble(t, 3, o, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		n := c.Node(owner)
		started, finish := make(chan node.Ownership, 1), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // stops when the callback does
			_ = n.Own(t.Context(), nil, func(_ context.Context, o node.Ownership) error {
				started <- o
				<-finish
				return nil
			})
		})
		hold := <-started
		began := time.Now()
		wg.Go(func() { // stops when the node is shut down
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := n.Shutdown(ctx); err == nil {
				t.Error("shutdown with a callback that does not return: got nil, want an error that says so")
			}
		})
		time.Sleep(drain - time.Millisecond)
		if err := hold.Check(); err != nil {
			t.Errorf("ownership before the drain timeout: %v", err)
		}
		c.Await("another owner", func() bool { i := c.Owner(1); return i >= 0 && i != owner })
		if took := time.Since(began); took < drain+ownerLease || took > drain+5*time.Second {
			t.Errorf("the next owner came after %v, want it after the drain timeout and a lease", took)
		}
		wantErr(t, "ownership of the callback that still runs", hold.Check(), node.ErrLost)
		close(finish)
		wg.Wait()
		c.Close(owner)
	})
}

// A callback that fails runs again, under the same token, after 100 ms, then twice that, up to 10 s; one that returns nil does not.
func TestNode_Own_Backoff(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Time
		tokens := map[node.Token]bool{}
		done := make(chan error, 1)
		go func() { // stops when ctx ends
			done <- c.Node(0).Own(ctx, nil, func(_ context.Context, o node.Ownership) error {
				at = append(at, time.Now())
				tokens[o.Token()] = true
				if len(at) == 12 {
					return nil
				}
				return errors.New("fails")
			})
		}()
		time.Sleep(5 * time.Minute)
		cancel()
		wantErr(t, "own", <-done, context.Canceled)
		if len(at) != 12 || len(tokens) != 1 {
			t.Fatalf("ran %d times under %d tokens, want 12 under one", len(at), len(tokens))
		}
		want := 100 * time.Millisecond
		for k := 1; k < len(at); k++ {
			if got := at[k].Sub(at[k-1]); got != want {
				t.Errorf("pause %d: got %v, want %v", k, got, want)
			}
			want = min(2*want, 10*time.Second)
		}
	})
}

// Several Own run side by side: each gets its callback, a hand-over waits for all, and one that ends leaves the others alone.
func TestNode_Own_Several(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *nodetest.Cluster) {
		var wg sync.WaitGroup
		var mu sync.Mutex // guards returned
		var returned [2]time.Time
		first, cancel := context.WithCancel(t.Context())
		for k, ctx := range []context.Context{first, t.Context()} {
			wg.Go(func() { // stops with ctx, or with the node
				_ = c.Node(0).Own(ctx, nil, func(ctx context.Context, o node.Ownership) error {
					<-ctx.Done()
					time.Sleep(time.Duration(k+1) * time.Second)
					if k == 1 && o.Check() != nil {
						t.Errorf("the ownership ended before the callback: %v", o.Check())
					}
					mu.Lock()
					returned[k] = time.Now()
					mu.Unlock()
					return nil
				})
			})
		}
		time.Sleep(time.Second)
		cancel()
		time.Sleep(5 * time.Second)
		mu.Lock()
		if returned[0].IsZero() || !returned[1].IsZero() {
			t.Errorf("after one Own ended: callbacks returned at %v", returned)
		}
		mu.Unlock()
		took := c.Shutdown(0)
		wg.Wait()
		if returned[1].IsZero() || took < 2*time.Second {
			t.Errorf("shutdown took %v and did not wait for the callback", took)
		}
	})
}
