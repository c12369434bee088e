package node

import (
	"math/rand/v2"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport/memnet"
)

// A name to be reached at that does not resolve is warned of: it may come to, but until then nobody finds the node (case 112).
func TestCase112_UnresolvableAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log memo
		m := newMachine(t, memnet.New(memnet.Options{}))
		n := m.open(t, "app.invalid:7400", func(c *Config) { c.Bootstrap, c.Insecure, c.Logger = 1, true, log.logger() })
		awaitReady(t, n)
		if !log.has("Config.Advertise does not resolve") {
			t.Error("no warning was logged")
		}
	})
}

// sizeOf is the size of the node's record in the directory.
func sizeOf(t *testing.T, fs vfs.FS) int64 {
	t.Helper()
	i, err := fs.Stat(path.Join("/data", identityFile))
	if err != nil {
		t.Fatal(err)
	}
	return i.Size()
}

// Power is lost 50 times in a start, after each number of writes and syncs that one makes and at others by chance. Each time the directory
// opens again as the same node with a higher number, and its record neither grows nor leaves anything behind but one unfinished copy
// (case 117).
func TestCase117_CrashesAtOpen(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 7))
	disk := vfs.NewCrashableMem()
	n := founder(t, disk)
	n.founding.adopt(planFor(n))
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	was, size := n.me, sizeOf(t, disk)
	for crash := range 50 {
		left := crash % 16
		e := &env.Env{Clock: env.NewVirtual(time.Now()), FS: errorfs.Wrap(disk, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if left--; left < 0 {
				return errorfs.ErrInjected
			}
			return nil
		}))}
		began := was.Incarnation
		if h, err := openHome(e, "/data", 1); err == nil {
			began = h.id.Incarnation // it may have introduced itself with that
		}
		disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		h := &home{fs: disk, dir: "/data"}
		if err := h.load(); err != nil {
			t.Fatalf("crash %d: %v", crash, err)
		}
		if h.id.ID != was.Node || h.id.Incarnation < began || !h.id.Founded {
			t.Fatalf("crash %d: node %s, start %d, founded %v, want %s, at least %d, true", crash, h.id.ID, h.id.Incarnation, h.id.Founded, was.Node, began)
		}
		was.Incarnation = h.id.Incarnation
	}
	if got := sizeOf(t, disk); got > size+1 { // a digit of the incarnation
		t.Errorf("the record has %d bytes, had %d", got, size)
	}
	if names, err := disk.List("/data"); err != nil || len(names) > 3 { // node.json, LOCK and node.json.tmp
		t.Errorf("the directory has %v, %v", names, err)
	}
	if was.Incarnation < 10 {
		t.Errorf("only %d starts got through: the crashes come too early", was.Incarnation)
	}
}

// Founders are closed 50 times while they start and agree on a plan. They found one cluster in the end, and the record in the directory, and the one
// that is gossiped, are no larger than of a node that started once (case 117).
func TestCase117_CrashesWhileFounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 17))
		net := memnet.New(memnet.Options{Delay: 20 * time.Millisecond})
		machines := []*machine{newMachine(t, net), newMachine(t, net), newMachine(t, net), newMachine(t, net)}
		open := func(i int) *Node {
			n, err := machines[i].tryOpen(t, memAddr(i), func(c *Config) { c.Bootstrap, c.Join = 3, []string{memAddr(0), memAddr(1), memAddr(2)} })
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		nodes := []*Node{open(0), open(1), open(2)}
		for range 50 {
			i := rng.IntN(3)
			time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
			mustClose(t, nodes[i])
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			nodes[i] = open(i)
		}
		awaitReady(t, nodes...)
		fresh := machines[3].open(t, memAddr(3), func(c *Config) { c.Join = []string{memAddr(0)} })
		awaitReady(t, fresh)
		for i, n := range nodes {
			if a, b := n.Status().Cluster, fresh.Status().Cluster; a != b {
				t.Errorf("node %d is of cluster %s, another of %s", i, a, b)
			}
			if got, want := sizeOf(t, machines[i].fs), sizeOf(t, machines[3].fs); got > want+3 { // digits of the incarnation
				t.Errorf("the record of node %d has %d bytes, that of a new one %d", i, got, want)
			}
			if tags := n.net.gossip.Self().Tags; len(tags) > 0 {
				t.Errorf("node %d gossips %v", i, tags)
			}
			mustClose(t, n)
		}
	})
}
