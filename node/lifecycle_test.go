package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// callers are calls of all kinds that go on until the node closes, and must then end with ErrClosed.
type callers struct {
	t  *testing.T
	n  *node.Node
	wg sync.WaitGroup
}

// loop repeats call until it says that the node is closed.
func (c *callers) loop(what string, call func(ctx context.Context) error) {
	c.wg.Go(func() { // stops when the node is closed; wait waits for it
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := call(ctx)
			cancel()
			switch {
			case errors.Is(err, node.ErrClosed):
				return
			case err == nil, errors.Is(err, node.ErrNoQuorum), errors.Is(err, node.ErrUnknown), errors.Is(err, node.ErrLost), errors.Is(err, node.ErrNotFound), errors.Is(err, context.DeadlineExceeded):
			default:
				c.t.Errorf("%s: got %v", what, err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// call starts all kinds of calls.
func (c *callers) call() {
	s := c.n.ShardAt(1)
	c.loop("put", func(ctx context.Context) error { _, err := s.Put(ctx, "k", nil, nil); return err })
	c.loop("get", func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err })
	c.loop("blocked lock", func(ctx context.Context) error { _, err := s.Lock(ctx, "held by one", nil); return err })
	c.loop("ready", func(ctx context.Context) error { return c.n.Ready(ctx) })
	c.loop("own", func(ctx context.Context) error {
		return c.n.Own(ctx, nil, func(ctx context.Context, _ node.Ownership) error { <-ctx.Done(); return ctx.Err() })
	})
	c.loop("observe", func(ctx context.Context) error {
		for _, err := range s.Observe(ctx, "nobody") {
			if err != nil {
				return err
			}
		}
		return nil
	})
	c.loop("watch owners", func(ctx context.Context) error {
		for _, err := range c.n.WatchOwners(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	c.loop("watch members", func(ctx context.Context) error {
		for _, err := range c.n.WatchMembers(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *callers) wait() { c.wg.Wait() }

// closeNow closes the node from two goroutines, and wants that to be over soon.
func closeNow(t *testing.T, n *node.Node) {
	t.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { // stops when the node is closed
			if err := n.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("close took %v, want 10 s at most", took)
	}
	if err := n.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if n.Err() != nil || n.Healthy() != nil || n.Status().State != node.StateClosed {
		t.Errorf("after close: err %v, state %v", n.Err(), n.Status().State)
	}
}

// Nodes that are closed at any instant, during founding, joining, elections and hand-overs, with calls of all kinds in flight, end in
// time, end the calls with ErrClosed, and open again at the same address (case 151).
func TestCase151_OpenClose(t *testing.T) {
	for seed := range nightly(2, 10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(seed), 151))
				c := nodetest.New(t, 3, &nodetest.Options{Seed: uint64(seed)})
				for round := range 20 {
					i := rng.IntN(3)
					n := c.Node(i)
					callers := &callers{t: t, n: n}
					callers.call()
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					switch round % 4 {
					case 0:
						owner := max(c.Owner(1), 0) // in the middle of the election after this
						if owner != i {
							c.Kill(owner)
							time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
						}
						closeNow(t, n)
						callers.wait()
						c.Close(i)
						if owner != i {
							c.Restart(owner)
						}
					case 1: // without a majority
						c.Isolate(i)
						time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
						closeNow(t, n)
						callers.wait()
						c.Heal()
						c.Close(i)
					default:
						closeNow(t, n)
						callers.wait()
						c.Close(i)
					}
					c.Restart(i)
				}
				c.AwaitReady()
			})
		})
	}
}

// A node that cannot found, because the others are not there, closes at any instant and opens again (case 151).
func TestCase151_WhileFounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 151))
		c := nodetest.New(t, 2, &nodetest.Options{Bootstrap: 3, Replicas: 3})
		for range 30 {
			n := c.Node(0)
			callers := &callers{t: t, n: n}
			callers.call()
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			closeNow(t, n)
			callers.wait()
			c.Close(0)
			c.Restart(0)
		}
	})
}

// Close does not depend on a majority, ends 1,000 blocked callers, and may be called from a callback of Own (case 151).
func TestCase151_BlockedCallers(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		mustLock(t, c.Node(0).ShardAt(1), "held")
		n := c.Node(1)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { // stops when the node is closed
				_, err := n.ShardAt(1).Lock(context.Background(), "held", nil)
				wantErr(t, "blocked lock", err, node.ErrClosed)
			})
		}
		time.Sleep(time.Second)
		c.Isolate(1)
		closeNow(t, n)
		wg.Wait()
		c.Heal()
		c.Close(1)
		c.Restart(1)

		owner := c.AwaitOwner(1)
		n = c.Node(owner)
		closed := make(chan error, 1)
		err := n.Own(t.Context(), nil, func(context.Context, node.Ownership) error {
			closed <- n.Close()
			return nil
		})
		wantErr(t, "own", err, node.ErrClosed)
		wantErr(t, "close from a callback", <-closed, nil)
		c.Close(owner)
	})
}

// openFiles counts the process's open files.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// On real sockets and disks, a node that is opened and closed again and again at odd times leaves no goroutine and no file, and its port and
// directory are free at once (case 151).
func TestCase151_RealSockets(t *testing.T) {
	own := goleak.IgnoreCurrent()
	rng := rand.New(rand.NewPCG(2, 151))
	c := realConfig(t.TempDir())
	n := openReal(t, c)
	c.Bind = n.Addr()
	closeReal(t, n)
	before := openFiles(t)
	for range nightly(12, 200) {
		n, err := node.Open(t.Context(), c)
		if err != nil {
			t.Fatalf("open again: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(400))*time.Millisecond)
		_ = n.Ready(ctx) // or not
		cancel()
		closeReal(t, n)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, before there were %d", after, before)
	}
	goleak.VerifyNone(t, own, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
