package node_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// heap is what is live on the heap.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIdle measures what three nodes with 16 shards, in one process on loopback and disk, cost while nothing happens: CPU in thousandths
// of a core, heap, goroutines and open files, each for one node; and how long the first start and a restart of all take until they are ready.
func BenchmarkIdle(b *testing.B) {
	const nodes, idle = 3, 5 * time.Second
	var dirs [nodes]string
	for i := range dirs {
		dirs[i] = b.TempDir()
	}
	var addrs []string
	open := func() (all []*node.Node, took time.Duration) {
		began := time.Now()
		for i := range nodes {
			c := node.Config{Name: "idle-" + strconv.Itoa(i), Dir: dirs[i], Bind: "127.0.0.1:0", Join: addrs, Bootstrap: nodes, Logger: hclog.NewNullLogger()}
			n, err := node.Open(context.Background(), c)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = n.Close() }) // again, if it was closed
			addrs = append(addrs, n.Addr())
			all = append(all, n)
		}
		for _, n := range all {
			if err := n.Ready(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		return all, time.Since(began)
	}
	for b.Loop() {
		addrs = nil
		goroutines, live := runtime.NumGoroutine(), heap()
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			b.Fatal(err)
		}
		all, start := open()
		timer := time.NewTimer(2 * time.Second) // elections and moves of the start are over
		<-timer.C
		used := cpuTime(b)
		timer.Reset(idle)
		<-timer.C
		used = cpuTime(b) - used
		now, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(1000*used.Seconds()/idle.Seconds()/nodes, "millicores/node")
		b.ReportMetric(float64(heap()-live)/(1<<20)/nodes, "heap-MiB/node")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/nodes, "goroutines/node")
		b.ReportMetric(float64(len(now)-len(files))/nodes, "files/node")
		b.ReportMetric(start.Seconds(), "s-to-start")
		for _, n := range all {
			if err := n.Close(); err != nil {
				b.Fatal(err)
			}
		}
		addrs = nil
		all, restart := open()
		b.ReportMetric(restart.Seconds(), "s-to-restart")
		for _, n := range all {
			if err := n.Close(); err != nil {
				b.Fatal(err)
			}
		}
		for i := range dirs {
			dirs[i] = b.TempDir()
		}
	}
}
