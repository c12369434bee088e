package fsm

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A refounded shard starts a new log, in a new era, without the old claim: every token of it is above every token
// ever granted, and the old owner's stamp means nothing.
func TestMachine_Refound(t *testing.T) {
	mem := vfs.NewCrashableMem()
	m, err := Open(openDB(t, mem), 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{t: t, m: m}
	s.claim("a", 900)
	id := s.session("n")
	held := s.want(fsmpb.Result_OK, lockOp(id, 1, "x")).Token
	s.do(putOp("k", "v"))
	old := s.stamp
	for _, era := range []uint64{0, MaxEra + 1} {
		if err := m.Refound(era, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("era %d: got %v, want ErrInvalid", era, err)
		}
	}
	if err := m.Refound(4, 1); err != nil {
		t.Fatal(err)
	}
	checkMirror(t, m)
	if m, err = Open(openDB(t, mem.CrashClone(vfs.CrashCloneCfg{})), 7, 3, Options{}); err != nil {
		t.Fatal(err)
	}
	if m.Applied() != 1 || m.Claim() != (Claim{}) {
		t.Fatalf("after a crash: got applied %d, claim %+v; want 1 and none", m.Applied(), m.Claim())
	}
	s = &shard{t: t, m: m, index: 1}
	if a := s.entry(batchEntry(old, touchOp())); !errors.Is(a.Err, ErrStale) {
		t.Errorf("old stamp: got %v, want ErrStale", a.Err)
	}
	s.claim("b", 1)
	if s.stamp != FirstToken(4)+1 || uint64(s.stamp) <= held {
		t.Errorf("first token: got %d, want %d", s.stamp, FirstToken(4)+1)
	}
	if x, ok := m.Session(id); !ok || x.Hot || x.TTL != 10*time.Second {
		t.Errorf("session: got %+v, want it there and cold", x)
	}
	s.want(fsmpb.Result_OK, guarded(putOp("k", "w"), fsmpb.Guard_LOCK, "x", Token(held)))
}
