package node

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// gossipEnd is how long goroutines of the gossip library outlive it. A bubble must wait for them.
const gossipEnd = 15 * time.Second

// A machine is where a node of a test inside this package lives, in a bubble: its disks are in memory. Tests of whole clusters use
// nodetest.
type machine struct {
	net  *memnet.Network
	fs   vfs.FS
	log  logDisk
	raft raftvfs.FS // log, with faults
}

func newMachine(t *testing.T, net *memnet.Network) *machine {
	t.Cleanup(func() { time.Sleep(gossipEnd) })
	log := logDisk{raftvfs.NewMem()}
	return &machine{net: net, fs: vfs.NewMem(), log: log, raft: raftvfs.Wrap(log, noFault{})}
}

// logDisk is a file system in memory that tells its size, which the log's store asks for.
type logDisk struct{ *raftvfs.MemFS }

func (logDisk) GetDiskUsage(string) (raftvfs.DiskUsage, error) {
	return raftvfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

type noFault struct{}

func (noFault) MaybeError(raftvfs.Op) error { return nil }

func (m *machine) env() *env.Env {
	return &env.Env{
		Clock:  env.NewVirtual(time.Now()),
		FS:     m.fs,
		RaftFS: m.raft,
		BootID: "boot",
		Listen: func(bind, _ string, _ hclog.Logger) (transport.Transport, error) { return m.net.Listen(bind) },
		Lookup: func(_ context.Context, host string) ([]string, error) {
			if strings.HasSuffix(host, ".invalid") {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []string{host}, nil
		},
	}
}

// open starts a node here, with one shard, unless change says otherwise. It is closed when the test ends, if it was not before.
func (m *machine) open(t *testing.T, addr string, change func(*Config)) *Node {
	t.Helper()
	n, err := m.tryOpen(t, addr, change)
	if err != nil {
		t.Fatalf("open %s: %v", addr, err)
	}
	t.Cleanup(func() { mustClose(t, n) })
	return n
}

// tryOpen is open for starts that may be refused; it leaves closing to the caller.
func (m *machine) tryOpen(t *testing.T, addr string, change func(*Config)) (*Node, error) {
	t.Helper()
	c := Config{Name: addr, Dir: "/data", Bind: addr, Shards: 1, Logger: hclog.NewNullLogger()}
	if change != nil {
		change(&c)
	}
	return Open(env.With(t.Context(), m.env()), c)
}

// memAddr is an address for node i.
func memAddr(i int) string { return fmt.Sprintf("127.0.0.%d:7400", i+1) }

func mustClose(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Errorf("close %s: %v", n.Addr(), err)
	}
}

func awaitReady(t *testing.T, nodes ...*Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			t.Fatalf("%s is not ready: %v", n.Addr(), err)
		}
	}
}
