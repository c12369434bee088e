package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/node"
)

// A job has one completed run in the whole cluster: whoever asks again gets its result.
func ExampleShard_RunOnce() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	s := n.Shard("billing")
	bill := func(ctx context.Context, r *node.Run) ([]byte, error) {
		fmt.Printf("attempt %d\n", r.Attempt()) // what it does outside carries r.Token()
		return []byte("17 invoices"), nil
	}
	for range 2 {
		result, err := s.RunOnce(ctx, "billing/2026-11-29", &node.JobOptions{Keep: 90 * 24 * time.Hour}, bill)
		if err != nil && !errors.Is(err, node.ErrAlreadyDone) {
			fmt.Println(err) // the job stays to be done
			return
		}
		fmt.Printf("%s, done before: %v\n", result, errors.Is(err, node.ErrAlreadyDone))
	}
	// Output:
	// attempt 1
	// 17 invoices, done before: false
	// 17 invoices, done before: true
}
