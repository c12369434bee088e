package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// An observer sees every leader, in the order of tokens, and the latest value; a leadership passes to whom it is transferred to.
func TestShard_Campaign(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		seen := make(chan string, 100)
		go func() {
			defer close(seen)
			for l, err := range c.Node(2).ShardAt(1).Observe(ctx, "e") {
				if err != nil {
					return
				}
				seen <- l.Member.Name + "=" + string(l.Value)
			}
		}()
		la, err := a.Campaign(ctx, "e", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := la.Proclaim(ctx, []byte("2")); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		won := make(chan *node.Leadership, 1)
		go func() {
			lb, err := b.Campaign(ctx, "e", []byte("3"))
			if err != nil {
				t.Errorf("second campaign: %v", err)
			}
			won <- lb
		}()
		time.Sleep(time.Second)
		if err := la.Transfer(ctx, c.Node(1).ID()); err != nil {
			t.Errorf("transfer: %v", err)
		}
		lb := <-won
		if lb.Token() <= la.Token() || la.Check() == nil {
			t.Errorf("tokens: got %d after %d; the former leader's check: %v", lb.Token(), la.Token(), la.Check())
		}
		time.Sleep(time.Second)
		if err := lb.Transfer(ctx, "nobody"); !errors.Is(err, node.ErrNotFound) {
			t.Errorf("transfer to nobody: got %v, want ErrNotFound", err)
		}
		time.Sleep(time.Second)
		cancel()
		var got []string
		for s := range seen {
			got = append(got, s)
		}
		n0, n1 := c.Node(0).Name(), c.Node(1).Name()
		if want := []string{"=", n0 + "=1", n0 + "=2", n1 + "=3", "="}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// Lead runs its function at one node at a time, goes to another when the leader dies, campaigns again after a failure, and ends when the function
// returns nil.
func TestShard_Lead(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		var mu sync.Mutex
		running, runs := 0, 0
		fn := func(ctx context.Context, l *node.Leadership) error {
			mu.Lock()
			running++
			runs++
			first := runs == 1
			if running > 1 {
				t.Error("two lead at once")
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				running--
				mu.Unlock()
			}()
			if first {
				return fmt.Errorf("planted")
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return nil
			}
		}
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				if err := c.Node(i).ShardAt(1).Lead(t.Context(), "e", fn); err != nil {
					t.Errorf("lead at node %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if runs < 3 {
			t.Errorf("runs: got %d, want one that failed and one for each node", runs)
		}
	})
}
