package node_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// A write through a guarded view is done only while the grant is the current one: a holder that was paused, and comes back too late, changes nothing.
func ExampleShard_Guarded() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	s := n.Shard("customer-42")
	lock, err := s.Lock(ctx, "invoice", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mine := s.Guarded(lock)
	_, err = mine.Put(ctx, "invoices/7", []byte("paid"), nil)
	fmt.Println("while it is held:", err)
	if err := s.ForceRelease(ctx, "invoice", lock.Token()); err != nil { // an operator takes it away
		fmt.Println(err)
	}
	_, err = mine.Put(ctx, "invoices/7", []byte("cancelled"), nil)
	fmt.Println("after it was lost, fenced:", errors.Is(err, node.ErrFenced))
	r, err := s.Get(ctx, "invoices/7")
	fmt.Printf("%s is %s, %v\n", r.Key, r.Value, err)
	// Output:
	// while it is held: <nil>
	// after it was lost, fenced: true
	// invoices/7 is paid, <nil>
}
