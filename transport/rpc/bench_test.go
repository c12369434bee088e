package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/rpc"
)

// Calls of 128 bytes over loopback TCP, client and server in one process.
func BenchmarkClient_Call(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c, addr := benchPair(b)
			body := make([]byte, 128)
			ctx := context.Background()
			if _, err := c.Call(ctx, addr, 1, body); err != nil {
				b.Fatal(err)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() { // stops when all calls were made
					for left.Add(-1) >= 0 {
						if _, err := c.Call(ctx, addr, 1, body); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

func benchPair(b *testing.B) (*rpc.Client, string) {
	b.Helper()
	var ends [2]transport.Transport
	for i := range ends {
		x, err := transport.Listen(transport.Config{Bind: "127.0.0.1:0"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { x.Close() })
		ends[i] = x
	}
	s := rpc.Serve(ends[0], func(_ context.Context, r rpc.Request) ([]byte, error) { return r.Body, nil }, nil)
	b.Cleanup(func() { s.Close() })
	c := rpc.NewClient(ends[1], nil)
	b.Cleanup(func() { c.Close() })
	return c, ends[0].Addr()
}
