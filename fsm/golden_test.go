package fsm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A golden is a snapshot that was written once and must be read for ever. What is written today may differ.
type golden struct {
	file    string
	hash    uint64
	applied uint64
	build   func(testing.TB) *shard // the same state, but for what the snapshot does not know
	oldest  Revision                // first one of its history
	frozen  bool                    // it cannot be written any more
}

func goldens() []golden {
	return []golden{
		// Of before there was a history: it begins with the next change.
		{file: "v1.snapshot", hash: 0x1f4689f5213571a0, applied: 6, build: goldenShard, oldest: 4, frozen: true},
		// With a history, records that go with sessions or expire, and all kinds of results.
		{file: "v1-history.snapshot", hash: 0x8b8eb8088bfa2665, applied: 16, build: goldenConfig, oldest: 3},
	}
}

// goldenConfig adds to what goldenShard has everything of config records.
func goldenConfig(t testing.TB) *shard {
	s := goldenShard(t)
	a, b := s.m.st.order.list[0].id, s.m.st.order.list[1].id
	e := batchEntry(s.stamp, ttlOp("ttl/1", "x", 5e9), ttlOp("ttl/2", "y", 7e9), ephemeralOp(a, 20, "eph/1", "here"),
		ephemeralOp(b, 20, "eph/2", "there"), by(b, 21, 0, addOp("n", -3)))
	e.GetBatch().At = 1_700_000_000_000_000_000
	s.entry(e)
	second, _ := s.m.Get([]byte("ttl/2"))
	s.do(ageOp(ref("ttl/2", second.Mod, 3e9)))
	s.do(by(a, 21, 0, otherwise(txnOp(conditions(number("n", fsmpb.Condition_VERSION, fsmpb.Condition_EQUAL, 1)),
		readPart("n"), readPart("none"), part(addOp("n", 5)), part(deleteOp("ttl/1")), part(deleteOp("none")), part(putOp("p/1", "1"))),
		readPart("n"))))
	s.do(putOp("p/2", "2"), putOp("p/3", "3"))
	s.do(by(a, 22, 0, prefixOp("p/")), by(a, 23, 0, expireOp(ref("ttl/1", 4, 0), ref("ttl/2", 1, 0))))
	s.do(ttlOp("ttl/3", "", 1))
	s.do(by(a, 24, 0, expireOp(ref("ttl/3", s.m.Revision(), 0))), putOp("n", "17"))
	end := endOp(b)
	end.GetEndSessions().Expired = false
	s.do(end)
	s.do(compactOp(3))
	s.do(by(a, 25, 0, casOp("k", 1, "conflict")))
	return s
}

// Snapshots of every released version restore for ever, to the same state, and go on (case 119's kind).
func TestMachine_Restore_Golden(t *testing.T) {
	for _, g := range goldens() {
		t.Run(g.file, func(t *testing.T) {
			file := filepath.Join("testdata", g.file)
			if os.Getenv("UPDATE_GOLDEN") != "" && !g.frozen {
				if err := os.WriteFile(file, stream(t, g.build(t).m), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s := newShard(t, Options{})
			if err := s.m.Restore(f, nil); err != nil {
				t.Fatal(err)
			}
			checkMirror(t, s.m)
			checkHistory(t, s.m)
			want := g.build(t)
			want.m.st.counters.oldest = g.oldest
			if diff := cmp.Diff(dumpState(want.m.st), dumpState(s.m.st)); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(stored(t, want.db, want.m.home.sp, kindRecord, kindRecord), stored(t, s.db, s.m.home.sp, kindRecord, kindRecord)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if got := hash(t, s.m); got != g.hash || s.m.Applied() != g.applied || s.m.Oldest() != g.oldest {
				t.Errorf("got hash %#x at %d, oldest %d; want %#x at %d, %d", got, s.m.Applied(), s.m.Oldest(), g.hash, g.applied, g.oldest)
			}
			s.index, s.stamp = s.m.Applied(), s.m.Claim().Token
			s.want(fsmpb.Result_OK, putOp("k", "goes on"))
			s.do(prefixOp(""), ephemeralOp(s.m.st.order.list[0].id, 99, "e", ""))
		})
	}
}
