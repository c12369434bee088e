package node_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A job has one recorded run however many ask at once, and everybody gets its result; a run that fails or whose process dies leaves it to
// be done under a higher token and attempt (case 45).
func TestShard_RunOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		var mu sync.Mutex
		completed := 0
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				got, err := c.Node(i%3).ShardAt(1).RunOnce(t.Context(), "job", nil, func(context.Context, *node.Run) ([]byte, error) {
					time.Sleep(time.Second)
					return []byte("result"), nil
				})
				if err == nil {
					mu.Lock()
					completed++
					mu.Unlock()
				} else if !errors.Is(err, node.ErrAlreadyDone) {
					t.Errorf("caller %d: %v", i, err)
				}
				if string(got) != "result" {
					t.Errorf("caller %d: got %q, want the recorded result", i, got)
				}
			})
		}
		wg.Wait()
		if completed != 1 {
			t.Errorf("completed runs: got %d, want 1", completed)
		}

		s := c.Node(0).ShardAt(1)
		planted := errors.New("planted")
		var failed node.Token
		if _, err := s.RunOnce(t.Context(), "second", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
			failed = r.Token()
			return nil, planted
		}); !errors.Is(err, planted) {
			t.Errorf("a run that fails: got %v, want its error", err)
		}
		killed := others(c, c.AwaitOwner(1))[0]
		began := make(chan node.Token, 1)
		go func() {
			_, err := c.Node(killed).ShardAt(1).RunOnce(context.WithoutCancel(t.Context()), "second", nil, func(ctx context.Context, r *node.Run) ([]byte, error) {
				began <- r.Token()
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if err == nil {
				t.Error("a run whose node died was recorded")
			}
		}()
		second := <-began
		c.Kill(killed)
		other := c.Node(others(c, killed)[0]).ShardAt(1)
		if _, err := other.RunOnce(within(t, time.Minute), "second", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
			if r.Attempt() != 3 || !(failed < second && second < r.Token()) {
				t.Errorf("third run: got attempt %d, tokens %d %d %d", r.Attempt(), failed, second, r.Token())
			}
			return nil, nil
		}); err != nil {
			t.Errorf("third run: %v", err)
		}
		synctest.Wait()
	})
}
