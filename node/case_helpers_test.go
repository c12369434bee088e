package node_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// ownerLease is Config.OwnerLease by default.
const ownerLease = 800 * time.Millisecond

// nightly is n by day and many when the nightly run asks for it.
func nightly(n, many int) int {
	if os.Getenv("OARLOCK_NIGHTLY") == "1" {
		return many
	}
	return n
}

// bubble runs f with a cluster of n nodes that is ready and settled: shards move to their preferred owners in the first seconds.
func bubble(t *testing.T, n int, o *nodetest.Options, f func(t *testing.T, c *nodetest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, n, o)
		c.AwaitReady()
		time.Sleep(25 * time.Second)
		f(t, c)
	})
}

// sessionTTL sets every node's SessionTTL.
func sessionTTL(d time.Duration) func(int, *node.Config) {
	return func(_ int, c *node.Config) { c.SessionTTL = d }
}

// others are the indexes of the nodes but the given ones.
func others(c *nodetest.Cluster, but ...int) []int {
	var all []int
next:
	for i := range c.Len() {
		for _, b := range but {
			if i == b {
				continue next
			}
		}
		all = append(all, i)
	}
	return all
}

// within is a context that ends after d of virtual time, at the latest with the test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t *testing.T, s *node.Shard, name string) *node.Lock {
	t.Helper()
	l, err := s.Lock(within(t, 30*time.Second), name, nil)
	if err != nil {
		t.Fatalf("lock %q: %v", name, err)
	}
	return l
}

func mustPut(t *testing.T, s *node.Shard, key, value string) node.Revision {
	t.Helper()
	rev, err := s.Put(within(t, 30*time.Second), key, []byte(value), nil)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return rev
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantDone waits for the end of a hold and fails if it does not come within limit after since.
func wantDone(t *testing.T, what string, h node.Hold, since time.Time, limit time.Duration) time.Duration {
	t.Helper()
	select {
	case <-h.Done():
	case <-time.After(limit + time.Minute):
	}
	took := time.Since(since)
	if took > limit {
		t.Errorf("%s: lost after %v, want at most %v", what, took, limit)
	}
	if err := h.Check(); !errors.Is(err, node.ErrLost) {
		time.Sleep(limit / 10) // Done comes a little early
		wantErr(t, what+": check after the loss", h.Check(), node.ErrLost)
	}
	return took
}

// isDone says whether a hold's Done is closed.
func isDone(h node.Hold) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}
