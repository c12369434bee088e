package node_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// manySessions is how many sessions of one shard the benchmarks have.
const manySessions = 100_000

// joinHolder starts one more node, without replicas.
func joinHolder(b *testing.B, nodes []*node.Node) *node.Node {
	b.Helper()
	n, err := node.Open(context.Background(), node.Config{Name: "holder", Dir: b.TempDir(), Bind: "127.0.0.1:0", Join: []string{nodes[0].Addr()},
		NoReplicas: true, Logger: hclog.NewNullLogger()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() }) // again, if it was closed
	if err := n.Ready(context.Background()); err != nil {
		b.Fatal(err)
	}
	return n
}

// openSessions opens count sessions, many at a time.
func openSessions(b *testing.B, s *node.Shard, count int, ttl time.Duration) {
	b.Helper()
	var wg sync.WaitGroup
	const at = 500
	for range at {
		wg.Go(func() { // stops when its part is opened
			for range count / at {
				if _, err := s.Session(context.Background(), ttl); err != nil {
					b.Errorf("open session: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// puts writes by four clients until done is closed, and returns the 99th percentile of what a write took.
func puts(b *testing.B, s *node.Shard, done <-chan struct{}) time.Duration {
	b.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { // stops when done is closed
			for {
				select {
				case <-done:
					return
				default:
				}
				began := time.Now()
				if _, err := s.Put(context.Background(), string(rune('a'+i)), make([]byte, 64), nil); err != nil {
					b.Errorf("put: %v", err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(took) == 0 {
		b.Fatal("no put")
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// settledShard returns a shard of the nodes once shards move no more.
func settledShard(nodes []*node.Node) *node.Shard {
	<-after(5 * time.Second)
	return nodes[0].ShardAt(1)
}

// counted adds up a counter of the nodes.
func counted(nodes []*node.Node, f func(node.Stats) uint64) (n uint64) {
	for _, x := range nodes {
		n += f(x.Stats())
	}
	return n
}

func expired(s node.Stats) uint64  { return s.SessionsExpired }
func inMemory(s node.Stats) uint64 { return s.RenewalsInMemory }

// after is closed after d.
func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) }) // runs once
	return done
}

// when is closed once ok, which is asked every 10 ms, returns true.
func when(ok func() bool) <-chan struct{} {
	done := make(chan struct{})
	go func() { // stops when ok
		defer close(done)
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		for !ok() {
			<-t.C
		}
	}()
	return done
}

// BenchmarkManySessions measures, on three nodes in one process, the 99th percentile of puts to a shard while nothing else happens, while 100,000
// of its sessions are renewed, and while they end for silence, as ratios to the first; and how long it takes to end all.
func BenchmarkManySessions(b *testing.B) {
	const ttl = 20 * time.Second
	for b.Loop() {
		nodes := openCluster(b, 3)
		s := settledShard(nodes)
		holder := joinHolder(b, nodes)
		idle := puts(b, s, after(5*time.Second))
		openSessions(b, holder.ShardAt(s.ID()), manySessions, ttl)
		before := counted(nodes, inMemory)
		renewed := puts(b, s, after(ttl))
		b.ReportMetric(float64(counted(nodes, inMemory)-before)/manySessions, "renewals/session")
		if lost := holder.Stats().SessionsLost; lost > 0 {
			b.Errorf("%d sessions were lost while they were renewed", lost)
		}
		if err := holder.Close(); err != nil {
			b.Fatal(err)
		}
		<-after(ttl * 9 / 10)
		began := time.Now()
		ended := puts(b, s, when(func() bool { return counted(nodes, expired) >= manySessions }))
		b.ReportMetric(float64(idle.Microseconds())/1000, "ms-p99-idle")
		b.ReportMetric(float64(renewed)/float64(idle), "x-p99-renewed")
		b.ReportMetric(float64(ended)/float64(idle), "x-p99-expired")
		b.ReportMetric((time.Since(began) - ttl/10).Seconds(), "s-to-expire")
	}
}

// BenchmarkManySessions_Memory measures what a session takes at its owner, on a cluster of one node: the goal is 1 KiB.
func BenchmarkManySessions_Memory(b *testing.B) {
	const ttl = 20 * time.Second
	for b.Loop() {
		nodes := openCluster(b, 1)
		s := settledShard(nodes)
		holder := joinHolder(b, nodes)
		runtime.GC()
		without := heap()
		openSessions(b, holder.ShardAt(s.ID()), manySessions, ttl)
		if err := holder.Close(); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		with := heap()
		<-when(func() bool { return counted(nodes, expired) >= manySessions })
		runtime.GC()
		b.ReportMetric((float64(with)-float64(without))/manySessions, "B/session")
		b.ReportMetric((float64(heap())-float64(without))/manySessions, "B-left/session")
	}
}
