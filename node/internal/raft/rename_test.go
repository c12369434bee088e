package raft

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"
	raftvfs "github.com/lni/vfs"

	"github.com/oarlock/oarlock/transport/memnet"
)

// counter is a state machine that counts entries.
type counter struct{ applied chan uint64 }

func (c counter) Open(<-chan struct{}) (uint64, error) { return 0, nil }

func (c counter) Update(es []sm.Entry) ([]sm.Entry, error) {
	for i := range es {
		if len(es[i].Cmd) > 0 {
			select {
			case c.applied <- es[i].Index:
			default:
			}
		}
	}
	return es, nil
}

func (counter) Lookup(any) (any, error)                              { return nil, nil }
func (counter) Sync() error                                          { return nil }
func (counter) PrepareSnapshot() (any, error)                        { return nil, nil }
func (counter) SaveSnapshot(any, io.Writer, <-chan struct{}) error   { return nil }
func (counter) RecoverFromSnapshot(io.Reader, <-chan struct{}) error { return nil }
func (counter) Close() error                                         { return nil }

// openHost opens a real host in dir, whose one replica is the whole group.
func openHost(t *testing.T, dir, id string, known bool) (h *Host, applied chan uint64, end func()) {
	t.Helper()
	net, err := memnet.New(memnet.Options{}).Listen("127.0.0.1:7400")
	if err != nil {
		t.Fatal(err)
	}
	applied = make(chan uint64, 16)
	h, err = Open(Config{
		Dir: dir, Node: id, Cluster: "c", Format: 1, ElectionTimeout: 300 * time.Millisecond,
		Transport: net,
		Resolve:   func(string) (string, bool) { return "127.0.0.1:7400", true },
		Machine:   func(uint64, uint64) sm.IOnDiskStateMachine { return counter{applied} },
		Leader:    func(uint64) {},
		Logger:    hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := h.Start(1, 1, map[uint64]string{1: id}, known); err != nil {
		t.Fatalf("start: %v", err)
	}
	return h, applied, func() {
		if err := errors.Join(h.Close(), net.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		h.Wait()
	}
}

// rename makes dir look as if a machine of another name had written it.
func rename(t *testing.T, dir, host string) {
	t.Helper()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, flagFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var s raftpb.RaftDataStatus
	if err := s.Unmarshal(b[8:]); err != nil {
		t.Fatal(err)
	}
	s.Hostname = host
	body, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(raftvfs.Default, name, append(flagHash(body), body...)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, own), filepath.Join(dir, host)); err != nil {
		t.Fatal(err)
	}
}

// await waits for an entry to be applied.
func await(t *testing.T, applied <-chan uint64) {
	t.Helper()
	select {
	case <-applied:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is applied")
	}
}

// awaitLeader waits until the replica leads its group.
func awaitLeader(t *testing.T, h *Host) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("no leader")
		}
		if leader, _ := h.Leader(1); leader == 1 {
			return
		}
	}
}

// A log that was written under another machine's name is opened under this one's, with everything in it, as often as the name changes.
func TestHost_Renamed(t *testing.T) {
	dir, id := t.TempDir(), uuid.NewString()
	count := 0
	for start := range 3 {
		h, applied, end := openHost(t, dir, id, start > 0)
		for range count { // what former starts wrote is replayed: the machine keeps nothing
			await(t, applied)
		}
		awaitLeader(t, h)
		if err := h.Propose(t.Context(), 1, []byte{1}, 10*time.Second); err != nil {
			t.Fatalf("propose: %v", err)
		}
		await(t, applied)
		count++
		end()
		rename(t, dir, "former-"+id[:8])
	}
}
