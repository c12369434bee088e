package fsm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Tokens of a new shard begin in its era; a shard that exists keeps its own.
func TestOpen_Era(t *testing.T) {
	s := newShard(t, Options{Era: 2})
	s.claim("a", 1)
	if s.stamp != FirstToken(2)+1 {
		t.Errorf("first token: got %d, want %d", s.stamp, FirstToken(2)+1)
	}
	m, err := Open(s.db, 7, 3, Options{Era: 9})
	if err != nil || m.Claim() != s.m.Claim() {
		t.Errorf("opened again: got %+v, %v; want %+v", m.Claim(), err, s.m.Claim())
	}
	if _, err := Open(s.db, 7, 4, Options{Era: MaxEra + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("era beyond the last: got %v, want ErrInvalid", err)
	}
}

// State that cannot have been written here is refused, never half read.
func TestOpen_Corrupt(t *testing.T) {
	for name, spoil := range map[string]func(db *pebble.DB, sp space) error{
		"CountersMissing": func(db *pebble.DB, sp space) error { return db.Delete(sp.start(nil, kindCounters), nil) },
		"CountersShort":   func(db *pebble.DB, sp space) error { return db.Set(sp.start(nil, kindCounters), []byte{layout}, nil) },
		"AppliedShort":    func(db *pebble.DB, sp space) error { return db.Set(sp.start(nil, kindApplied), []byte{1}, nil) },
		"Claim": func(db *pebble.DB, sp space) error {
			return db.Set(sp.start(nil, kindClaim), []byte{layout, 1, 200}, nil)
		},
		"UnknownKind":    func(db *pebble.DB, sp space) error { return db.Set(sp.start(nil, 'q'), nil, nil) },
		"UnknownLayout":  func(db *pebble.DB, sp space) error { return db.Set(sp.start(nil, kindClaim), []byte{layout + 1}, nil) },
		"SessionMissing": func(db *pebble.DB, sp space) error { return db.Delete(sp.number(nil, kindSession, 2), nil) },
		"HolderMissing": func(db *pebble.DB, sp space) error {
			return db.Delete(sp.pair(nil, kindClaimant, 2, 1), nil)
		},
		"Pointer": func(db *pebble.DB, sp space) error { return db.Set(pointerKey(7, 3), []byte{1}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := owned(t)
			a, b := s.session("a"), s.session("b")
			s.do(lockOp(a, 1, "x"), lockOp(b, 1, "x"))
			if a != 2 {
				t.Fatalf("session a: got %d, want 2", a)
			}
			if err := spoil(s.db, s.m.home.sp); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(s.db, 7, 3, Options{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
		})
	}
}

// Shards and replicas in one database do not touch each other, and Destroy removes one of them alone, for good.
func TestDestroy(t *testing.T) {
	mem := vfs.NewCrashableMem()
	db := openDB(t, mem)
	var shards []*shard
	for i := range uint64(3) {
		m, err := Open(db, 7+i/2, 255+i%2, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &shard{t: t, db: db, m: m}
		s.claim("a", 1)
		s.do(putOp("k", fmt.Sprint(i)), openOp("n", 1, 1e9))
		shards = append(shards, s)
	}
	if err := shards[0].m.Restore(newSlowReader(stream(t, shards[0].m)), nil); err != nil {
		t.Fatal(err)
	}
	shards[0].m.Close()
	want := []uint64{hash(t, shards[1].m), hash(t, shards[2].m)}
	for range 2 {
		if err := Destroy(db, 7, 255); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range shards[1:] {
		checkMirror(t, s.m)
		if hash(t, s.m) != want[i] {
			t.Errorf("shard %d changed", i+1)
		}
	}
	after := openDB(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	m, err := Open(after, 7, 255, Options{})
	if err != nil || m.Applied() != 0 || m.Claim() != (Claim{}) || m.home.sp.generation() != 1 {
		t.Errorf("destroyed: got applied %d, claim %+v, %v; want nothing", m.Applied(), m.Claim(), err)
	}
}

// Sync makes durable what was applied, without anything else being written.
func TestMachine_Sync(t *testing.T) {
	mem := vfs.NewCrashableMem()
	db := openDB(t, mem)
	m, err := Open(db, 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{t: t, db: db, m: m}
	s.claim("a", 1)
	s.do(putOp("k", "v"))
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	want := hash(t, m)
	again, err := Open(openDB(t, mem.CrashClone(vfs.CrashCloneCfg{})), 7, 3, Options{})
	if err != nil || again.Applied() != 2 || hash(t, again) != want {
		t.Errorf("after the crash: applied %d, %v; want 2 and the same hash", again.Applied(), err)
	}
}

// A machine whose storage fails in the middle of an Apply does nothing any more, holds no claim, and is whole again
// once it is opened anew (case 9: an apply that fails on one replica only must stop that replica).
func TestCase009_StorageFailsDuringApply(t *testing.T) {
	var broken atomic.Bool
	fault := errors.New("bad sector")
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) {
			return fault
		}
		return nil
	}))
	s := owned(t)
	s.do(putOp("k", "v"))
	b := stream(t, s.m)
	open := func() (*pebble.DB, *Machine) {
		cache := pebble.NewCache(0)
		defer cache.Unref()
		db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{t}, Cache: cache, MemTableSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(db, 7, 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return db, m
	}
	db, m := open()
	if err := m.Restore(newSlowReader(b), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	stamp, applied := m.Claim().Token, m.Applied()
	es := []Entry{{applied + 1, encode(t, batchEntry(stamp, openOp("n", 1, 1e9), casOp("k", 1, "w")))}}
	broken.Store(true)
	if done, err := m.Apply(es); !errors.Is(err, ErrFailed) || !errors.Is(err, fault) || done != nil {
		t.Fatalf("apply: got %+v, %v; want ErrFailed for the fault", done, err)
	}
	broken.Store(false)
	if _, err := m.Apply(es); !errors.Is(err, ErrFailed) {
		t.Errorf("apply again: got %v, want ErrFailed", err)
	}
	if m.Claim() != (Claim{}) || m.Applied() != applied {
		t.Errorf("failed machine: got claim %+v, applied %d; want none, %d", m.Claim(), m.Applied(), applied)
	}
	if err := m.Restore(newSlowReader(b), nil); !errors.Is(err, ErrFailed) {
		t.Errorf("restore: got %v, want ErrFailed", err)
	}
	m.Close()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, m = open()
	defer db.Close()
	checkMirror(t, m)
	done, err := m.Apply(es)
	if err != nil || len(done) != 1 || done[0].Results[1].Status != fsmpb.Result_OK {
		t.Errorf("opened again: got %+v, %v; want the entry applied", done, err)
	}
	checkMirror(t, m)
}

// After Close every call says so and touches the database no more; closing twice is fine.
func TestMachine_Close(t *testing.T) {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{t}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(db, 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{t: t, db: db, m: m}
	s.claim("a", 1)
	s.do(putOp("k", "v"))
	for range 2 {
		if err := s.m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Apply":   func() error { _, err := s.m.Apply([]Entry{{9, nil}}); return err },
		"Get":     func() error { _, err := s.m.Get([]byte("k")); return err },
		"List":    func() error { _, err := s.m.List(ListQuery{}); return err },
		"GetAt":   func() error { _, err := s.m.GetAt([]byte("k"), 1); return err },
		"Changes": func() error { _, err := s.m.Changes(ChangesQuery{From: 1}); return err },
		"History": func() error { _, err := s.m.History([]byte("k"), 0, 0); return err },
		"Expiring": func() (last error) {
			for _, err := range s.m.Expiring {
				last = err
			}
			return last
		},
		"Hash":    func() error { _, err := s.m.Hash(); return err },
		"Sync":    s.m.Sync,
		"Prepare": func() error { _, err := s.m.Prepare(); return err },
		"Restore": func() error { return s.m.Restore(newSlowReader(nil), nil) },
		"Err":     s.m.Err,
	} {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", name, err)
		}
	}
	if s.m.Claim().Node != "a" || s.m.Applied() != 2 {
		t.Error("memory is gone after Close")
	}
}

// Readers see whole calls of Apply and never go back in time, through records and memory, also across a Restore.
func TestMachine_Get_WhileApplying(t *testing.T) {
	s := newShard(t, Options{})
	s.claim("a", 1)
	id := s.session("n")
	round := func(i uint64) []Entry {
		v := fmt.Sprintf("%08d", i)
		op := lockOp(id, i*2+1, v)
		free := unlockOp(0, 0, fmt.Sprintf("%08d", i-1), uint64(s.m.Claim().Token)+i)
		return []Entry{
			{s.index + 2*i, encode(t, batchEntry(s.stamp, putOp("a", v), putOp("c", v), prefixOp("c"), free))},
			{s.index + 2*i + 1, encode(t, batchEntry(s.stamp, by(id, i*2+1, i*2, op), putOp("b", v)))},
		}
	}
	const rounds = 300
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { // stops when done is closed
			for last := ""; ; {
				select {
				case <-done:
					return
				default:
				}
				last = readRound(t, s.m, last)
			}
		})
	}
	for i := uint64(1); i <= rounds; i++ {
		if _, err := s.m.Apply(round(i)); err != nil {
			t.Errorf("round %d: %v", i, err)
			break
		}
		if i%50 == 0 {
			if err := s.m.Restore(newSlowReader(stream(t, s.m)), nil); err != nil {
				t.Error(err)
			}
		}
	}
	close(done)
	wg.Wait()
	checkMirror(t, s.m)
	if got := readRound(t, s.m, ""); got != fmt.Sprintf("%08d", rounds) {
		t.Errorf("at the end: got round %s, want %d", got, rounds)
	}
}

// readRound reads the state in several ways and returns the round that it saw, which is not before last.
func readRound(t *testing.T, m *Machine, last string) string {
	page, err := m.List(ListQuery{})
	recs, rev := page.Records, page.Revision
	if err != nil || len(recs) == 0 {
		return last
	}
	v := string(recs[0].Value)
	if len(recs) != 2 || string(recs[1].Value) != v || recs[1].Mod != rev || v < last {
		t.Errorf("list after %q: got %v at %d, want both records of one round, the last at that revision", last, recs, rev)
	}
	locks := m.Locks(fsmpb.Lock_LOCK, "", "", 0)
	if len(locks) != 1 || locks[0].Name < v {
		t.Errorf("locks after records of %q: got %+v, want one, not older", v, locks)
		return v
	}
	rec, err := m.Get([]byte("b"))
	if err != nil || string(rec.Value) < locks[0].Name {
		t.Errorf("get after lock %q: got %q, %v; want it not older", locks[0].Name, rec.Value, err)
	}
	return string(rec.Value)
}

// Entries that come twice within a call, or out of order, are applied once.
func TestMachine_Apply_TwiceInOneCall(t *testing.T) {
	s := owned(t)
	e := func(i uint64) Entry { return Entry{i, encode(t, batchEntry(s.stamp, putOp("k", fmt.Sprint(i))))} }
	done, err := s.m.Apply([]Entry{e(2), e(2), e(4), e(3), e(4), e(5)})
	if err != nil || len(done) != 3 || s.m.Revision() != 3 || s.m.Applied() != 5 {
		t.Errorf("got %+v, %v at revision %d, applied %d; want entries 2, 4 and 5", done, err, s.m.Revision(), s.m.Applied())
	}
	if done, err := s.m.Apply([]Entry{e(4), e(5)}); err != nil || len(done) != 0 || s.m.Revision() != 3 {
		t.Errorf("again: got %+v, %v at revision %d; want nothing", done, err, s.m.Revision())
	}
	checkMirror(t, s.m)
}
