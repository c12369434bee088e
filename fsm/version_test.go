package fsm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// second and firstOnly are two binaries: in the second version there is an operation more, for which Touch stands in.
func second() Options {
	return Options{MaxVersion: 2, since: func(op *fsmpb.Op) uint32 {
		if op.GetTouch() != nil {
			return 2
		}
		return since(op)
	}}
}

func firstOnly() Options {
	return Options{MaxVersion: 1, since: func(op *fsmpb.Op) uint32 {
		if op.GetTouch() != nil {
			return 0
		}
		return since(op)
	}}
}

// unknownEntries are entries that firstOnly cannot understand, in every place that something new may stand.
func unknownEntries() map[string]func() *fsmpb.Entry {
	unknownField := func() []byte { // of a later version
		return protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	}
	return map[string]func() *fsmpb.Entry{
		"NewerVersion":                 func() *fsmpb.Entry { e := batchEntry(1, putOp("k", "bad")); e.Version = 2; return e },
		"NewerVersionUnderAStaleStamp": func() *fsmpb.Entry { e := batchEntry(9, putOp("k", "bad")); e.Version = 2; return e },
		"UnknownKind": func() *fsmpb.Entry {
			op := &fsmpb.Op{}
			op.ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownKindInThisVersion": func() *fsmpb.Entry { return batchEntry(1, putOp("k", "bad"), touchOp()) },
		"UnknownFieldOfAKind": func() *fsmpb.Entry {
			op := putOp("k", "bad")
			op.GetPut().ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, op)
		},
		"UnknownFieldOfAGuard": func() *fsmpb.Entry {
			op := guarded(putOp("k", "bad"), fsmpb.Guard_SESSION, "", 1)
			op.Guards[0].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, op)
		},
		"UnknownKindOfGuard": func() *fsmpb.Entry { return batchEntry(1, guarded(putOp("k", "bad"), 9, "", 1)) },
		"UnknownKindOfLock":  func() *fsmpb.Entry { return batchEntry(1, putOp("k", "bad"), lockOf(3, 1, 1, "x")) },
		"UnknownKindOfForce": func() *fsmpb.Entry { return batchEntry(1, putOp("k", "bad"), forceOp(3, "x", 1)) },
		"UnknownModeOfLock": func() *fsmpb.Entry {
			op := lockOp(1, 1, "x")
			op.GetLock().Mode = 3
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfATransfer": func() *fsmpb.Entry {
			op := transferOp(0, "x", 1, "n")
			op.GetTransfer().ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfASilence": func() *fsmpb.Entry {
			op := checkpointOp(1, 1)
			op.GetCheckpoint().Sessions[0].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, op)
		},
		"UnknownFieldOfAnAdd": func() *fsmpb.Entry {
			op := addOp("k", 1)
			op.GetAdd().ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfARef": func() *fsmpb.Entry {
			op := expireOp(ref("k", 1, 0), ref("k", 1, 0))
			op.GetExpireRecords().Records[1].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfAnAge": func() *fsmpb.Entry {
			op := ageOp(ref("k", 1, 0))
			op.GetAgeRecords().Records[0].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfACondition": func() *fsmpb.Entry {
			op := txnOp(conditions(number("k", 0, 0, 1)))
			op.GetTxn().If[0].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownTarget": func() *fsmpb.Entry {
			return batchEntry(1, putOp("k", "bad"), txnOp(conditions(number("k", 5, 0, 1))))
		},
		"UnknownComparison": func() *fsmpb.Entry {
			return batchEntry(1, putOp("k", "bad"), txnOp(conditions(number("k", 3, 4, 1))))
		},
		"UnknownKindInATransaction": func() *fsmpb.Entry {
			op := txnOp(nil, part(putOp("k", "bad")), &fsmpb.TxnOp{})
			op.GetTxn().Then[1].ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldInATransaction": func() *fsmpb.Entry {
			op := otherwise(txnOp(nil), readPart("k"))
			op.GetTxn().Else[0].GetRead().ProtoReflect().SetUnknown(unknownField())
			return batchEntry(1, putOp("k", "bad"), op)
		},
		"UnknownFieldOfABatch": func() *fsmpb.Entry {
			e := batchEntry(1, putOp("k", "bad"))
			e.GetBatch().ProtoReflect().SetUnknown(unknownField())
			return e
		},
		"UnknownFieldOfAClaim": func() *fsmpb.Entry {
			e := claimEntry(&fsmpb.Claim{Node: "b", Term: 9, Lease: 1, Replaces: 1})
			e.GetClaim().ProtoReflect().SetUnknown(unknownField())
			return e
		},
		"UnknownBody": func() *fsmpb.Entry {
			e := &fsmpb.Entry{Version: 1}
			e.ProtoReflect().SetUnknown(unknownField())
			return e
		},
		"RaiseBeyond": func() *fsmpb.Entry { return batchEntry(1, putOp("k", "bad"), raiseOp(2)) },
	}
}

// An entry that a machine does not understand halts it there: what is before it is applied, of itself nothing, and
// nothing after it, ever. Another machine that understands it goes on.
func TestCase140_UnknownEntryHalts(t *testing.T) {
	for name, bad := range unknownEntries() {
		t.Run(name, func(t *testing.T) {
			s := newShard(t, firstOnly())
			s.claim("a", 1)
			es := []Entry{
				{2, encode(t, batchEntry(1, putOp("k", "before")))},
				{3, encode(t, bad())},
				{4, encode(t, batchEntry(1, putOp("k", "after")))},
			}
			done, err := s.m.Apply(es)
			if !errors.Is(err, ErrVersion) || len(done) != 2 || !errors.Is(done[1].Err, ErrVersion) || done[1].Results != nil {
				t.Fatalf("apply: got %+v, %v; want the first applied, the second refused with ErrVersion", done, err)
			}
			for range 2 {
				if _, err := s.m.Apply(es); !errors.Is(err, ErrHalted) {
					t.Errorf("apply again: got %v, want ErrHalted", err)
				}
			}
			if err := s.m.Err(); !errors.Is(err, ErrHalted) || !errors.Is(err, ErrVersion) {
				t.Errorf("state: got %v, want ErrHalted for ErrVersion", err)
			}
			if rec, err := s.m.Get([]byte("k")); string(rec.Value) != "before" || err != nil || s.m.Applied() != 2 {
				t.Errorf("k: got %q at %d, %v; want before at 2", rec.Value, s.m.Applied(), err)
			}
			checkMirror(t, s.m)
		})
	}
}

// What has no effect halts nobody: an operation of a refused batch may be as new as it likes.
func TestMachine_Apply_UnknownUnderStaleStamp(t *testing.T) {
	s := newShard(t, firstOnly())
	s.claim("a", 1)
	if a := s.entry(batchEntry(99, touchOp(), raiseOp(7))); !errors.Is(a.Err, ErrStale) {
		t.Errorf("got %v, want ErrStale", a.Err)
	}
}

// Entries that no version can mean anything by are refused on every replica alike, and applying goes on.
func TestMachine_Apply_Malformed(t *testing.T) {
	s := owned(t)
	before := hash(t, s.m)
	for name, data := range map[string][]byte{
		"Nothing": nil, "NotProtobuf": {0xff, 0xff}, "Truncated": encode(t, batchEntry(1, putOp("k", "v")))[:9],
		"NoBody": encode(t, &fsmpb.Entry{Version: 1}), "NoVersion": encode(t, &fsmpb.Entry{Body: batchEntry(1).Body}),
	} {
		s.index++
		done, err := s.m.Apply([]Entry{{s.index, data}})
		if err != nil || len(done) != 1 || !errors.Is(done[0].Err, ErrInvalid) {
			t.Errorf("%s: got %+v, %v; want ErrInvalid", name, done, err)
		}
	}
	if hash(t, s.m) != before || s.m.Applied() != s.index {
		t.Errorf("applied %d, want %d, and the state as before", s.m.Applied(), s.index)
	}
	s.want(fsmpb.Result_INVALID, &fsmpb.Op{})
	s.want(fsmpb.Result_OK, touchOp())
}

// Until the cluster is raised, a newer machine refuses what is new and is equal to an older one; afterwards the older
// one has halted and refuses to open what was raised (case 140, case 142).
func TestCase142_OldMachineRefusesRaisedState(t *testing.T) {
	oldFS := vfs.NewMem()
	oldDB := openDB(t, oldFS)
	old, err := Open(oldDB, 1, 1, firstOnly())
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(t, second())
	both := func(e *fsmpb.Entry) {
		t.Helper()
		s.entry(e)
		if _, err := old.Apply([]Entry{{s.index, encode(t, e)}}); err != nil {
			t.Fatalf("old machine: %v", err)
		}
		if hash(t, s.m) != hash(t, old) {
			t.Fatalf("entry %d: hashes differ", s.index)
		}
	}
	both(claimEntry(&fsmpb.Claim{Node: "a", Incarnation: 1, Term: 1, Lease: 1}))
	s.stamp = s.m.Claim().Token
	both(batchEntry(s.stamp, openOp("n", 1, 1e9), putOp("k", "v")))

	// Back and forth between binaries, with writes at each step, nothing is applied twice.
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	newer, err := Open(oldDB, 1, 1, second())
	if err != nil {
		t.Fatal(err)
	}
	old = newer
	both(batchEntry(s.stamp, putOp("k", "w")))
	newer.Close()
	if old, err = Open(oldDB, 1, 1, firstOnly()); err != nil {
		t.Fatal(err)
	}
	both(batchEntry(s.stamp, putOp("k", "x")))

	s.want(fsmpb.Result_INVALID, touchOp())
	s.want(fsmpb.Result_OK, raiseOp(2))
	s.want(fsmpb.Result_OK, touchOp())
	e := batchEntry(s.stamp, touchOp())
	e.Version = 2
	if a := s.entry(e); a.Err != nil {
		t.Errorf("entry of version 2: %v", a.Err)
	}
	if _, err := old.Apply([]Entry{{s.index, encode(t, batchEntry(s.stamp, raiseOp(2)))}}); !errors.Is(err, ErrVersion) {
		t.Errorf("old machine at the raise: got %v, want ErrVersion", err)
	}
	if _, err := Open(s.db, 7, 3, firstOnly()); !errors.Is(err, ErrVersion) {
		t.Errorf("old machine on raised state: got %v, want ErrVersion", err)
	}
	if m, err := Open(s.db, 7, 3, second()); err != nil || m.Version() != 2 {
		t.Errorf("new machine on raised state: %v", err)
	}
}

// An entry of a version that this machine knows but the cluster was not raised to is refused and changes nothing.
func TestMachine_Apply_VersionNotRaised(t *testing.T) {
	s := newShard(t, second())
	s.claim("a", 1)
	e := batchEntry(s.stamp, putOp("k", "v"))
	e.Version = 2
	if a := s.entry(e); !errors.Is(a.Err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", a.Err)
	}
}

// A snapshot is written in the cluster's version, whoever writes it: an older machine reads it until the cluster was
// raised, and then refuses it without harm.
func TestCase144_SnapshotAcrossVersions(t *testing.T) {
	newer := newShard(t, second())
	newer.claim("a", 1)
	newer.do(openOp("n", 1, 1e9), putOp("k", "v"))
	older := newShard(t, firstOnly())
	if err := older.m.Restore(bytes.NewReader(stream(t, newer.m)), nil); err != nil {
		t.Fatalf("version 1 on an older machine: %v", err)
	}
	checkMirror(t, older.m)
	if hash(t, older.m) != hash(t, newer.m) {
		t.Error("hashes differ")
	}
	third := newShard(t, second())
	if err := third.m.Restore(bytes.NewReader(stream(t, older.m)), nil); err != nil {
		t.Fatalf("version 1 on a newer machine: %v", err)
	}
	newer.do(raiseOp(2))
	before := hash(t, older.m)
	if err := older.m.Restore(bytes.NewReader(stream(t, newer.m)), nil); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2 on an older machine: got %v, want ErrVersion", err)
	}
	if hash(t, older.m) != before || older.m.Err() != nil {
		t.Errorf("the refused snapshot left a trace: %v", older.m.Err())
	}
}
