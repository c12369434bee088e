package node_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// openAlone opens a node that is a cluster by itself, on loopback, in a new directory, and waits until its shard has an owner. A service has three of them
// or more: see the README. The examples show the uses to copy, in which the context and the token of a hold reach whoever works under it: case 164.
func openAlone(ctx context.Context) (n *node.Node, stop func(), err error) {
	dir, err := os.MkdirTemp("", "oarlock")
	if err != nil {
		return nil, nil, err
	}
	n, err = node.Open(ctx, node.Config{
		Name: "app-1", Dir: dir, Bind: "127.0.0.1:0", Bootstrap: 1, Shards: 1,
		ElectionTimeout: 300 * time.Millisecond, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	stop = func() {
		if err := n.Close(); err != nil {
			fmt.Println("close:", err)
		}
		_ = os.RemoveAll(dir)
	}
	if err := n.Ready(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return n, stop, nil
}
