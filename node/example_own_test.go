package node_test

import (
	"context"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// Each node runs one function for each shard that it owns, so that the work is spread over all and nothing of it is done twice at a time.
func ExampleNode_Own() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	ctx, cancel := context.WithCancel(ctx)
	err = n.Own(ctx, nil, func(ctx context.Context, o node.Ownership) error {
		s := o.Shard().Guarded(o) // its writes are done only while this node owns the shard
		if _, err := s.Add(ctx, "runs", 1); err != nil {
			return err // it is run again, after a while
		}
		fmt.Println("works on shard", o.Shard().ID())
		cancel() // the service stops
		<-ctx.Done()
		return nil
	})
	fmt.Println(err) // all functions have returned
	// Output:
	// works on shard 1
	// context canceled
}
