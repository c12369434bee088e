package node_test

import (
	"context"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// A watch tells what there is, and then each change once and in order. It ends with an error that says why, or when its reader leaves.
func ExampleShard_Watch() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	s := n.Shard("limits")
	if _, err := s.Put(ctx, "limits/eu", []byte("10"), nil); err != nil {
		fmt.Println(err)
		return
	}
	for ev, err := range s.Watch(ctx, "limits/", &node.WatchOptions{Initial: true}) {
		switch {
		case err != nil:
			fmt.Println(err)
		case ev.Type == node.EventSynced: // all that there was has been told
			if _, err := s.Delete(ctx, "limits/eu"); err != nil {
				fmt.Println(err)
			}
			continue
		case ev.Type == node.EventPut:
			fmt.Printf("%s is %s\n", ev.Record.Key, ev.Record.Value)
			continue
		case ev.Type == node.EventDelete:
			fmt.Printf("%s is gone\n", ev.Record.Key)
		}
		break
	}
	// Output:
	// limits/eu is 10
	// limits/eu is gone
}
