package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
)

// fillRecords writes n records of 64 bytes under prefix.
func fillRecords(b *testing.B, s *node.Shard, prefix string, n int) {
	b.Helper()
	ctx := context.Background()
	var ops []node.Op
	for i := range n {
		ops = append(ops, node.PutOp(fmt.Sprintf("%s%06d", prefix, i), make([]byte, 64), nil))
		if len(ops) == 128 || i == n-1 {
			if _, err := s.Txn(ctx, node.Txn{Then: ops}); err != nil {
				b.Fatal(err)
			}
			ops = nil
		}
	}
}

// A read at the owner against one from another node.
func BenchmarkShard_Get(b *testing.B) {
	nodes := openCluster(b, 3)
	owned, _ := ownedShard(b, nodes[0])
	ctx := context.Background()
	if _, err := owned.Put(ctx, "k", make([]byte, 64), nil); err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]*node.Shard{"at=owner": owned, "at=other": nodes[1].ShardAt(owned.ID()), "at=stale": nodes[1].ShardAt(owned.ID()).Stale(time.Second)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Get(ctx, "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A listing of 10,000 records, as it is now and as it was 1,000 changes ago.
func BenchmarkShard_List(b *testing.B) {
	nodes := openCluster(b, 3)
	owned, _ := ownedShard(b, nodes[0])
	ctx := context.Background()
	fillRecords(b, owned, "k", 10_000)
	whole, err := owned.List(ctx, "k", nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if _, err := owned.Put(ctx, fmt.Sprintf("k%06d", i*7), nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	for name, o := range map[string]*node.ListOptions{"now": nil, "before": {At: whole.Revision}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := owned.List(ctx, "k", o)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, err := range l.All() {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != 10_000 {
					b.Fatalf("got %d records", n)
				}
			}
		})
	}
}

// 1,000 watchers of one prefix on one node, each told of every put: events a second, and how long after the put was acknowledged the last of them knew.
func BenchmarkShard_WatchFanOut(b *testing.B) {
	const watchers = 1000
	nodes := openCluster(b, 3)
	owned, _ := ownedShard(b, nodes[0])
	s := nodes[1].ShardAt(owned.ID())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	heard := make(chan struct{}, watchers)
	for range watchers {
		wg.Go(func() { // stops with ctx
			for e, err := range s.Watch(ctx, "w", &node.WatchOptions{Initial: true}) {
				if err == nil && e.Type != node.EventDelete {
					heard <- struct{}{}
				}
			}
		})
	}
	all := func() {
		for range watchers {
			<-heard
		}
	}
	all() // synced
	var delays []time.Duration
	b.ResetTimer()
	for range b.N {
		if _, err := owned.Put(ctx, "w", make([]byte, 64), nil); err != nil {
			b.Fatal(err)
		}
		acknowledged := time.Now()
		all()
		delays = append(delays, time.Since(acknowledged))
	}
	b.StopTimer()
	slices.Sort(delays)
	b.ReportMetric(float64(b.N*watchers)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
	cancel()
	wg.Wait()
}

// One watch that catches up with a long history.
func BenchmarkShard_WatchCatchUp(b *testing.B) {
	nodes := openCluster(b, 1)
	s, _ := ownedShard(b, nodes[0])
	ctx := context.Background()
	start, err := s.Put(ctx, "k", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	const events = 100_000
	for n := 0; n < events; n += 12_800 {
		fillRecords(b, s, "k", min(12_800, events-n))
	}
	b.ResetTimer()
	for range b.N {
		n := 0
		for _, err := range s.Watch(ctx, "k", &node.WatchOptions{From: start + 1}) {
			if err != nil {
				b.Fatal(err)
			}
			if n++; n == events {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
}
