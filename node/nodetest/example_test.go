package nodetest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A biller is a service under test: it bills once a second, on the node that owns its shard, at a database that checks tokens.
type biller struct {
	mu    sync.Mutex // guards bills
	bills int
}

func (b *biller) run(ctx context.Context, o node.Ownership, db *nodetest.Resource) error {
	for ctx.Err() == nil {
		if err := db.Write(o.Token(), "billed"); err != nil {
			return err
		}
		b.mu.Lock()
		b.bills++
		b.mu.Unlock()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// How a user tests a service of their own: it goes on when the node that runs it is killed, and never runs twice. The cluster checks
// its own invariants meanwhile.
func TestExample_OwnService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, nil)
		c.AwaitReady()
		db, b := c.Resource(), &biller{}
		for _, n := range c.Nodes() {
			go func() { // stops when the node is closed
				_ = n.Own(context.Background(), nil, func(ctx context.Context, o node.Ownership) error {
					return b.run(ctx, o, db)
				})
			}()
		}
		time.Sleep(10 * time.Second)
		c.Kill(c.AwaitOwner(1))
		before, _ := db.Counts()
		time.Sleep(10 * time.Second)
		after, refused := db.Counts()
		if after-before < 5 {
			t.Errorf("billed %d times in 10 s after a kill, want at least 5", after-before)
		}
		if refused > 0 {
			t.Errorf("%d bills of a former owner came late", refused)
		}
	})
}
