package node_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// open founds a cluster of n nodes on loopback with directories on disk.
func openCluster(tb testing.TB, count int) []*node.Node {
	tb.Helper()
	ctx := context.Background()
	var nodes []*node.Node
	var join []string
	for i := range count {
		n, err := node.Open(ctx, node.Config{
			Name:      "bench-" + strconv.Itoa(i),
			Dir:       tb.TempDir(),
			Bind:      "127.0.0.1:0",
			Join:      join,
			Bootstrap: count,
			Shards:    4,
			Replicas:  count,
			Logger:    hclog.NewNullLogger(),
		})
		if err != nil {
			tb.Fatalf("open node %d: %v", i, err)
		}
		tb.Cleanup(func() {
			if err := n.Close(); err != nil {
				tb.Errorf("close: %v", err)
			}
		})
		join = append(join, n.Addr())
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			tb.Fatalf("ready: %v", err)
		}
	}
	return nodes
}

// ownedShard returns a shard that n owns, and its ownership.
func ownedShard(tb testing.TB, n *node.Node) (*node.Shard, node.Ownership) {
	tb.Helper()
	for s := range n.Shards() {
		if o, ok := s.Owned(); ok {
			return s, o
		}
	}
	tb.Fatal("the node owns no shard")
	return nil, node.Ownership{}
}

func BenchmarkShard_Owned(b *testing.B) {
	s, _ := ownedShard(b, openCluster(b, 1)[0])
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Owned(); !ok {
			b.Fatal("not owned")
		}
	}
}

func BenchmarkOwnership_Check(b *testing.B) {
	_, o := ownedShard(b, openCluster(b, 1)[0])
	b.ReportAllocs()
	for b.Loop() {
		if err := o.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLock_Check(b *testing.B) {
	s, _ := ownedShard(b, openCluster(b, 1)[0])
	l, err := s.Lock(context.Background(), "bench", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShard_GetAtOwner(b *testing.B) {
	s, _ := ownedShard(b, openCluster(b, 1)[0])
	ctx := context.Background()
	if _, err := s.Put(ctx, "k", make([]byte, 64), nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(ctx, "k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShard_Put(b *testing.B) {
	for _, clients := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			nodes := openCluster(b, 3)
			var s *node.Shard
			for _, n := range nodes {
				for x := range n.Shards() {
					if _, ok := x.Owned(); ok {
						s = x
					}
				}
			}
			value := make([]byte, 64)
			b.SetParallelism(max(1, clients/2))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Put(context.Background(), "k", value, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// aroundOwner returns one shard as its owner and then as the other nodes see it.
func aroundOwner(tb testing.TB, nodes []*node.Node) []*node.Shard {
	tb.Helper()
	for i, n := range nodes {
		for s := range n.Shards() {
			if _, ok := s.Owned(); !ok {
				continue
			}
			all := []*node.Shard{s}
			for k, other := range nodes {
				if k != i {
					all = append(all, other.ShardAt(s.ID()))
				}
			}
			return all
		}
	}
	tb.Fatal("no shard has an owner")
	return nil
}

// byClients has clients share b.N calls of f, which is given the client's number.
func byClients(b *testing.B, clients int, f func(client int) error) {
	b.Helper()
	var calls atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range clients {
		wg.Go(func() { // stops when all calls are made, or one failed
			for calls.Add(1) <= int64(b.N) {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
}

func lockUnlock(ctx context.Context, s *node.Shard, name string) error {
	l, err := s.Lock(ctx, name, nil)
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

// Locks that nobody else wants, one for each client, at the shard's owner and elsewhere.
func BenchmarkShard_LockUnlock(b *testing.B) {
	for i, s := range aroundOwner(b, openCluster(b, 3))[:2] {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("at=%s/clients=%d", []string{"owner", "other"}[i], clients), func(b *testing.B) {
				byClients(b, clients, func(i int) error { return lockUnlock(context.Background(), s, strconv.Itoa(i)) })
			})
		}
	}
}

// One lock that goes round between two nodes, neither of which owns the shard: one client holds it and two wait, so each call is a hand-off.
func BenchmarkShard_HandOff(b *testing.B) {
	shards := aroundOwner(b, openCluster(b, 3))
	byClients(b, 3, func(i int) error { return lockUnlock(context.Background(), shards[1+i%2], "x") })
}
