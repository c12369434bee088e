package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// newSlowReader gives data in pieces, as a network does.
func newSlowReader(b []byte) io.Reader {
	return iotest.HalfReader(iotest.DataErrReader(bytes.NewReader(b)))
}

// furnished is a shard with one of everything, and some bulk.
func furnished(t testing.TB) *shard {
	s := newShard(t, Options{Era: 3})
	s.claim("node-1", 4)
	a, b := s.session("a"), s.session("b")
	op := lockOp(a, 1, "held")
	op.GetLock().Value = []byte("value")
	s.do(op, lockOp(b, 1, "held"), lockOp(b, 2, "free"), by(a, 3, 1, putOp("k", "1")), by(a, 4, 1, casOp("k", 9, "2")),
		by(b, 3, 0, unlockOp(b, 3, "free", 1)), cancelOp(b, 5, 4), checkpointOp(b, 3e9), by(a, 5, 1, renewOp(a, 99)),
		by(a, 6, 1, putOp("", "")))
	for i := range 20 {
		s.do(putOp(fmt.Sprintf("bulk/%02d", i), string(bytes.Repeat([]byte{byte(i)}, 10<<10))))
	}
	return s
}

// A restored replica is equal to the one that the snapshot was taken of, at that instant, whatever came later.
func TestSnapshot_Save(t *testing.T) {
	s := furnished(t)
	want, applied := hash(t, s.m), s.m.Applied()
	snap, err := s.m.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	s.do(putOp("k", "later"), endOp(s.m.st.order.list[0].id))
	s.m.Close() // a closed machine's snapshot stays usable
	for range 2 {
		var b bytes.Buffer
		if err := snap.Save(&b, make(chan struct{})); err != nil {
			t.Fatal(err)
		}
		r := newShard(t, Options{})
		if err := r.m.Restore(newSlowReader(b.Bytes()), nil); err != nil {
			t.Fatal(err)
		}
		checkMirror(t, r.m)
		if got := hash(t, r.m); got != want || r.m.Applied() != applied || snap.Applied() != applied {
			t.Errorf("restored: got hash %x at %d, want %x at %d", got, r.m.Applied(), want, applied)
		}
	}
}

// An older snapshot replaces newer state: what is not in it is gone.
func TestMachine_Restore_Older(t *testing.T) {
	s := furnished(t)
	want, applied, b := hash(t, s.m), s.m.Applied(), stream(t, s.m)
	s.do(putOp("new", "x"), openOp("late", 1, 1e9))
	s.claim("node-2", 9)
	if err := s.m.Restore(bytes.NewReader(b), nil); err != nil {
		t.Fatal(err)
	}
	checkMirror(t, s.m)
	if got := hash(t, s.m); got != want || s.m.Applied() != applied {
		t.Errorf("restored: got %x at %d, want %x at %d", got, s.m.Applied(), want, applied)
	}
	if _, err := s.m.Get([]byte("new")); !errors.Is(err, ErrNotFound) {
		t.Errorf("new: got %v, want ErrNotFound", err)
	}
	s.index, s.stamp = applied, s.m.Claim().Token
	s.do(putOp("goes", "on"))
}

// A stream that is cut, changed in any byte, stopped or unreadable leaves the state as it was, and no trace
// (case 118's kind).
func TestMachine_Restore_Broken(t *testing.T) {
	small := owned(t)
	small.do(putOp("k", "v"), lockOp(small.session("n"), 1, "x"))
	good := stream(t, small.m)
	s := furnished(t)
	want := hash(t, s.m)
	check := func(what string, r io.Reader, stop chan struct{}, wants error) {
		t.Helper()
		if err := s.m.Restore(r, stop); !errors.Is(err, wants) {
			t.Fatalf("%s: got %v, want %v", what, err, wants)
		}
		if got := hash(t, s.m); got != want {
			t.Fatalf("%s: the state changed", what)
		}
		if n := foreign(t, s.db, s.m.home.sp); n != 0 {
			t.Fatalf("%s: %d keys left behind", what, n)
		}
	}
	for n := range good {
		check(fmt.Sprintf("cut at %d", n), bytes.NewReader(good[:n]), nil, ErrCorrupt)
		bad := bytes.Clone(good)
		bad[n] ^= 0x20
		check(fmt.Sprintf("flip at %d", n), bytes.NewReader(bad), nil, ErrCorrupt)
	}
	closed := make(chan struct{})
	close(closed)
	check("stopped", bytes.NewReader(good), closed, ErrStopped)
	broken := errors.New("cable cut")
	check("unreadable", io.MultiReader(bytes.NewReader(good[:len(good)-9]), iotest.ErrReader(broken)), nil, broken)
	if err := s.m.Restore(bytes.NewReader(good), nil); err != nil || hash(t, s.m) != hash(t, small.m) {
		t.Errorf("good at last: %v", err)
	}
}

// Save ends when it is told to, or when the writer fails, and says so.
func TestSnapshot_Save_Fails(t *testing.T) {
	s := furnished(t)
	snap, err := s.m.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	closed := make(chan struct{})
	close(closed)
	if err := snap.Save(io.Discard, closed); !errors.Is(err, ErrStopped) {
		t.Errorf("stopped: got %v, want ErrStopped", err)
	}
	r, w := io.Pipe()
	full := errors.New("disk full")
	r.CloseWithError(full)
	if err := snap.Save(w, nil); !errors.Is(err, full) {
		t.Errorf("broken writer: got %v, want %v", err, full)
	}
}

// foreign counts the keys of the replica that are not in its current space.
func foreign(t testing.TB, db *pebble.DB, sp space) int {
	t.Helper()
	n := 0
	all := sp
	clear(all[spaceLen-8:])
	if err := eachBetween(db, all[:], successor(all[:spaceLen-8]), func([]byte, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := eachBetween(db, sp[:], sp.end(), func([]byte, []byte) error { n--; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A crash at any step of a Restore leaves the old state or the new one, whole, and nothing else (case 118).
func TestMachine_Restore_Crash(t *testing.T) {
	next := furnished(t)
	b := stream(t, next.m)
	mem := vfs.NewCrashableMem()
	var mu sync.Mutex // guards clones and watching: the storage writes from goroutines of its own
	var clones []*vfs.MemFS
	watching := false
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if watching && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
		}
		return nil
	}))
	db := openDB(t, fs)
	m, err := Open(db, 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{t: t, db: db, m: m}
	s.claim("a", 1)
	s.do(putOp("old", "state"), openOp("n", 1, 1e9))
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	old := hash(t, m)
	watch := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		watching = on
	}
	watch(true)
	if err := m.Restore(bytes.NewReader(b), nil); err != nil {
		t.Fatal(err)
	}
	watch(false)
	clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
	seen, last := map[uint64]int{}, uint64(0)
	for i, clone := range clones {
		db := openDB(t, clone)
		m, err := Open(db, 7, 3, Options{})
		if err != nil {
			t.Fatalf("crash %d: open: %v", i, err)
		}
		checkMirror(t, m)
		last = hash(t, m)
		seen[last]++
		if n := foreign(t, db, m.home.sp); n != 0 {
			t.Errorf("crash %d: %d keys left behind", i, n)
		}
	}
	if seen[old] == 0 || seen[hash(t, next.m)] == 0 || len(seen) != 2 {
		t.Errorf("states after %d crashes: got %v, want old %x and new %x", len(clones), seen, old, hash(t, next.m))
	}
	if last != hash(t, next.m) {
		t.Errorf("after Restore returned: got %x, want it durable", last)
	}
}

// goldenShard builds what the golden snapshot holds: every kind of record, with every field in use.
func goldenShard(t testing.TB) *shard {
	s := newShard(t, Options{Era: 5})
	s.claim("node-1", 4)
	s.do(openOp("a", 2, 5e9), openOp("b", 1, 9e9))
	a, b := s.m.st.order.list[0].id, s.m.st.order.list[1].id
	show := lockOp(a, 1, "held")
	show.GetLock().Value = []byte("value")
	s.do(show, lockOp(b, 1, "held"), lockOp(b, 2, "other"), by(a, 3, 1, putOp("k", "1")), by(a, 4, 1, casOp("k", 9, "2")),
		by(a, 5, 1, renewOp(a, 99)), by(a, 6, 1, putOp("", "")), cancelOp(b, 4, 3), checkpointOp(b, 3e9), putOp("k", "2"),
		putOp("\x00\xff", ""))
	goldenHolds(s, a, b)
	return s
}

// goldenHolds adds what is held in other ways than a mutex is.
func goldenHolds(s *shard, a, b Token) {
	c := Token(s.want(fsmpb.Result_OK, openOp("c", 1, 9e9)).Token)
	all := lockOp(b, 10, "all/1")
	all.GetLock().Names = [][]byte{[]byte("held"), []byte("all/2")}
	timed := lockOf(fsmpb.Lock_ELECTION, b, 11, "lead")
	timed.GetLock().Value, timed.GetLock().MaxHold, timed.GetLock().Grace = []byte("here"), 7e9, 8e9
	dies := lockOp(c, 1, "dies")
	dies.GetLock().Grace = 9e9
	s.do(all, timed, dies, shareOp(a, 12, "read"), shareOp(b, 12, "read"), permitOp(a, 13, "sem", 2), permitOp(b, 13, "sem", 3),
		lockOf(fsmpb.Lock_JOB, a, 14, "done"), lockOf(fsmpb.Lock_JOB, a, 15, "fails"), lockOf(fsmpb.Lock_JOB, b, 15, "fails"))
	grant := func(seq uint64) uint64 { res, _ := s.m.Result(a, seq); return res.Token }
	lead, _ := s.m.Lock(fsmpb.Lock_ELECTION, []byte("lead"))
	s.do(passOp(0, MaxPass), doneOp(a, 16, "done", grant(14), "result", 1e9, 5), unlockOf(fsmpb.Lock_JOB, "fails", grant(15)),
		lockOf(fsmpb.Lock_JOB, b, 16, "done"), startedOp(fsmpb.Lock_ELECTION, "lead", uint64(lead.Holders[0].Token)),
		revokeOp(fsmpb.Lock_ELECTION, "lead"), permitsOp("sem", 4), endOp(c))
}
