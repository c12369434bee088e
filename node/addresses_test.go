package node

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/transport/memnet"
)

// What is remembered follows the members of the cluster, keeps the last address of those that are gone, forgets those that left, never takes
// up a stranger, and is bounded, where those that the cluster was founded with stay.
func TestAddresses_Merge(t *testing.T) {
	member := func(id, cluster string, s membership.State) membership.Member {
		return membership.Member{Record: membership.Record{ID: id, Cluster: cluster, Addr: "new-" + id}, State: s}
	}
	was := map[string]string{"a": "old-a", "b": "old-b", "c": "old-c", "d": "old-d", "e": "old-e", "self": "old-self"}
	got := merge(was, []membership.Member{
		member("a", "x", membership.Alive), member("b", "x", membership.Failed), member("c", "x", membership.Left),
		member("d", "y", membership.Alive), member("f", "x", membership.Suspect), member("g", "", membership.Alive), member("self", "x", membership.Alive),
	}, "self", "x", nil)
	want := map[string]string{"a": "new-a", "b": "new-b", "e": "old-e", "f": "new-f", "self": "old-self"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if was["a"] != "old-a" {
		t.Error("it changed what was given")
	}
	var many []membership.Member
	for i := range 3 * maxAddresses {
		many = append(many, member(fmt.Sprintf("n%04d", i), "x", membership.Alive))
	}
	got = merge(map[string]string{}, many, "self", "x", []string{"n0000", "n0002"})
	if len(got) != maxAddresses || got["n0000"] == "" || got["n0002"] == "" {
		t.Errorf("of %d members %d are remembered, want %d with the founders", len(many), len(got), maxAddresses)
	}
}

// The file survives a restart, is written only when something changed, and anything else in its place is as good as none.
func TestAddresses_File(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	writes := 0
	count := errorfs.Wrap(fs, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpCreate {
			writes++
		}
		return nil
	}))
	h := &home{fs: count, dir: "/data"}
	a, err := loadAddresses(h)
	if err != nil || a.former() != "" || len(a.all()) != 0 {
		t.Fatalf("no file: got %q, %v, %v", a.former(), a.all(), err)
	}
	peers := map[string]string{"id": "10.0.0.1:7400"}
	for range 3 {
		if err := a.update("own:1", maps.Clone(peers)); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("written %d times, want once", writes)
	}
	if a, err := loadAddresses(h); err != nil || a.former() != "own:1" || !maps.Equal(a.peersNow(), peers) {
		t.Errorf("loaded %q, %v, %v", a.former(), a.peersNow(), err)
	}
	for _, content := range []string{"", "garbage", `{"peers": 7}`, `{"peers": {"id": "` + strings.Repeat("x", 2*maxAddrsFile) + `"}}`} {
		if err := writeSynced(fs, "/data/"+addrsFile, []byte(content)); err != nil {
			t.Fatal(err)
		}
		a, err := loadAddresses(h)
		if err == nil || a.former() != "" || len(a.all()) != 0 {
			t.Errorf("%.20q: got %q, %v, %v, want nothing and an error", content, a.former(), a.all(), err)
		}
	}
}

// A file that can be neither read nor written stops no node.
func TestAddresses_DiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errDisk := errors.New("disk is broken")
		m := newMachine(t, memnet.New(memnet.Options{Delay: time.Millisecond}))
		m.fs = errorfs.Wrap(m.fs, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if strings.Contains(o.Path, addrsFile) {
				return errDisk
			}
			return nil
		}))
		var log memo
		n := m.open(t, memAddr(0), func(c *Config) { c.Bootstrap, c.Logger = 1, log.logger() })
		awaitReady(t, n)
		time.Sleep(time.Minute)
		if err := n.Healthy(); err != nil {
			t.Errorf("healthy: got %v", err)
		}
		if !log.has(errDisk.Error()) {
			t.Error("nothing was logged")
		}
	})
}
