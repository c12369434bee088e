package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/node"
)

// At most two of all processes use the slow service at once.
func ExampleShard_Semaphore() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	s := n.Shard("slow-service")
	var permits []*node.Permit
	for range 3 {
		p, err := s.Semaphore(ctx, "calls", 2, &node.LockOptions{Wait: 10 * time.Millisecond})
		if errors.Is(err, node.ErrHeld) {
			fmt.Println("full with", len(permits))
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		permits = append(permits, p)
	}
	for _, p := range permits {
		fmt.Println(p.Release(ctx))
	}
	// Output:
	// full with 2
	// <nil>
	// <nil>
}
