package nodetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node/nodetest"
)

// A cluster of three founds itself, elects an owner, and goes on when it is killed.
func TestCluster_Kill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, nil)
		c.AwaitReady()
		began := time.Now()
		old := c.AwaitOwner(1)
		if _, err := c.Node(old).ShardAt(1).Put(t.Context(), "k", []byte("v"), nil); err != nil {
			t.Fatalf("put: %v", err)
		}
		c.Kill(old)
		next := (old + 1) % 3
		r, err := c.Node(next).ShardAt(1).Get(t.Context(), "k")
		if err != nil || string(r.Value) != "v" {
			t.Fatalf("get after the owner was killed: got %q, %v, want v", r.Value, err)
		}
		t.Logf("took %v", time.Since(began))
		c.Restart(old)
		c.AwaitReady()
	})
}
