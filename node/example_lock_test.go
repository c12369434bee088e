package node_test

import (
	"context"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/fence"
)

// What is done under a lock gets a context that ends when the lock is lost, and the token, which goes with each write to what the lock protects.
func ExampleShard_Lock() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	invoices := &fence.Guard{} // the resource: it refuses tokens lower than it has seen
	lock, err := n.Shard("customer-42").Lock(ctx, "invoice", &node.LockOptions{Wait: 5 * time.Second})
	if err != nil {
		fmt.Println(err) // ErrHeld names who holds it
		return
	}
	work := func(ctx context.Context, token node.Token) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx) // ErrLost: another may have the lock by now
		}
		return invoices.Check("invoice-7", uint64(token))
	}
	fmt.Println("work:", work(lock.Context(ctx), lock.Token()))
	fmt.Println("unlock:", lock.Unlock(ctx))
	fmt.Println("held:", lock.Check())
	// Output:
	// work: <nil>
	// unlock: <nil>
	// held: not held
}
