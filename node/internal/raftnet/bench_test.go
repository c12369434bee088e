package raftnet

import (
	"fmt"
	"testing"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
)

// What a batch costs from one node to another over loopback TCP, by how many entries of 128 bytes it carries.
func BenchmarkConn_SendMessageBatch(b *testing.B) {
	for _, entries := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			batch := batchOf(nodeA, 1)
			batch.Requests[0].Entries = nil
			for i := range entries {
				batch.Requests[0].Entries = append(batch.Requests[0].Entries, pb.Entry{Index: uint64(i + 1), Term: 4, Cmd: make([]byte, 128)})
			}
			addrs := new(book)
			arrived := make(chan struct{}, 1<<16)
			start := func(node string) *Net {
				tr, err := transport.Listen(transport.Config{Bind: "127.0.0.1:0"})
				if err != nil {
					b.Fatal(err)
				}
				addrs.set(node, tr.Addr())
				f := NewFactory(Config{Transport: tr, Self: node, Cluster: clusterX, Resolve: addrs.resolve})
				n := f.Create(config.NodeHostConfig{}, func(pb.MessageBatch) { arrived <- struct{}{} }, nil).(*Net)
				if err := n.Start(); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					if err := n.Close(); err != nil {
						b.Error(err)
					}
					if err := tr.Close(); err != nil {
						b.Error(err)
					}
				})
				return n
			}
			from := start(nodeA)
			start(nodeB)
			c, err := from.GetConnection(b.Context(), nodeB)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(int64(batch.Size()))
			b.ReportAllocs()
			b.ResetTimer()
			go func() { // stops when all are sent; the receiving loop below waits for them
				for range b.N {
					if err := c.SendMessageBatch(batch); err != nil {
						b.Error(err)
					}
				}
			}()
			for range b.N {
				<-arrived
			}
		})
	}
}
