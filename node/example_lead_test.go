package node_test

import (
	"context"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// One node of all that call Lead runs the function at a time, again and again until it returns nil.
func ExampleShard_Lead() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	s := n.Shard("jobs")
	err = s.Lead(ctx, "scheduler", func(ctx context.Context, l *node.Leadership) error {
		if err := l.Proclaim(ctx, []byte("10.0.0.1:8080")); err != nil {
			return err // campaign again
		}
		for leader, err := range s.Observe(ctx, "scheduler") { // as any node can
			if err != nil {
				return err
			}
			fmt.Printf("%s leads at %s\n", leader.Member.Name, leader.Value)
			break
		}
		return nil // ctx ends with the leadership: a function that goes on for ever returns then
	})
	fmt.Println(err)
	// Output:
	// app-1 leads at 10.0.0.1:8080
	// <nil>
}
