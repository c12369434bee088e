package fsm

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

const (
	exists, val, version, mod, create = fsmpb.Condition_EXISTS, fsmpb.Condition_VALUE, fsmpb.Condition_VERSION, fsmpb.Condition_MOD, fsmpb.Condition_CREATE
	eq, ne, lt, gt                    = fsmpb.Condition_EQUAL, fsmpb.Condition_NOT_EQUAL, fsmpb.Condition_LESS, fsmpb.Condition_GREATER
)

// Every target under every comparison, of a record (created at 2, changed at 4, version 2, value "m") and of an absent one.
func TestMachine_Txn_Conditions(t *testing.T) {
	s := owned(t)
	s.do(putOp("before", ""), putOp("k", "a"), putOp("between", ""), putOp("k", "m"), putOp("empty", ""))
	for _, c := range []struct {
		target  fsmpb.Condition_Target
		compare fsmpb.Condition_Compare
		given   any
		present bool // of k
		absent  bool // of a key without a record
	}{
		{exists, eq, 1, true, false}, {exists, eq, 0, false, true},
		{val, eq, "m", true, false}, {val, eq, "l", false, false}, {val, eq, "", false, false}, {val, eq, "mm", false, false},
		{val, ne, "m", false, true}, {val, ne, "l", true, true}, {val, ne, "", true, true},
		{val, lt, "m", false, false}, {val, lt, "n", true, false}, {val, lt, "l", false, false}, {val, lt, "ma", true, false}, {val, lt, "", false, false},
		{val, gt, "m", false, false}, {val, gt, "l", true, false}, {val, gt, "n", false, false}, {val, gt, "", true, false},
		{version, eq, 2, true, false}, {version, eq, 0, false, true}, {version, eq, 1, false, false},
		{version, ne, 2, false, true}, {version, ne, 0, true, false},
		{version, lt, 3, true, true}, {version, lt, 2, false, true}, {version, lt, 0, false, false}, {version, lt, math.MaxInt64, true, true},
		{version, gt, 1, true, false}, {version, gt, 2, false, false}, {version, gt, -1, true, true}, {version, gt, math.MinInt64, true, true},
		{mod, eq, 4, true, false}, {mod, eq, 0, false, true}, {mod, eq, 2, false, false},
		{mod, ne, 4, false, true}, {mod, ne, 0, true, false},
		{mod, lt, 5, true, true}, {mod, lt, 4, false, true}, {mod, lt, 0, false, false},
		{mod, gt, 3, true, false}, {mod, gt, 4, false, false}, {mod, gt, -1, true, true},
		{create, eq, 2, true, false}, {create, eq, 0, false, true}, {create, eq, 4, false, false},
		{create, ne, 2, false, true}, {create, ne, 0, true, false},
		{create, lt, 3, true, true}, {create, lt, 2, false, true}, {create, lt, 0, false, false},
		{create, gt, 1, true, false}, {create, gt, 2, false, false}, {create, gt, -1, true, true},
	} {
		for key, want := range map[string]bool{"k": c.present, "absent": c.absent} {
			cond := &fsmpb.Condition{Key: []byte(key), Target: c.target, Compare: c.compare}
			switch x := c.given.(type) {
			case int:
				cond.Number = int64(x)
			case string:
				cond.Value = []byte(x)
			}
			res := s.want(fsmpb.Result_OK, otherwise(txnOp(conditions(cond), readPart("k")), readPart("absent")))
			if res.Succeeded != want || res.Answers[0].Found != want {
				t.Errorf("%s: %v %v %v: got %v, want %v", key, c.target, c.compare, c.given, res.Succeeded, want)
			}
		}
	}
	if res := s.want(fsmpb.Result_OK, txnOp(conditions(value("empty", eq, ""), number("empty", exists, eq, 1)))); !res.Succeeded {
		t.Error("an empty value is not equal to an empty one")
	}
	if res := s.want(fsmpb.Result_OK, txnOp(conditions(value("k", eq, "m"), value("k", eq, "x"), value("k", eq, "m")))); res.Succeeded {
		t.Error("one of three conditions does not hold, and all do")
	}
	if s.m.Revision() != 5 || hash(t, s.m) == 0 {
		t.Errorf("revision: got %d, want 5", s.m.Revision())
	}
}

// All that a transaction changes is under one revision, each operation is answered in its place, and reads see what was before.
func TestMachine_Txn(t *testing.T) {
	s := owned(t)
	s.do(putOp("n", "5"), putOp("gone", "x"), putOp("k", "old"))
	res := s.want(fsmpb.Result_OK, otherwise(txnOp(conditions(value("k", eq, "old"), number("new", exists, eq, 0)),
		readPart("k"), part(putOp("k", "new")), readPart("k"), part(deleteOp("gone")), part(deleteOp("never")), part(addOp("n", -7)), readPart("n"),
		part(putOp("new", "")), readPart("new"), readPart("never"), part(addOp("m", 3))), part(putOp("wrong", ""))))
	if !res.Succeeded || res.Revision != 4 {
		t.Fatalf("got %v, want it under 4", res)
	}
	var got []string
	for _, a := range res.Answers {
		got = append(got, fmt.Sprintf("%v %s@%d %d %v", a.Found, a.Record.GetValue(), a.Record.GetMod(), a.Number, a.Deleted))
	}
	want := []string{"true old@3 0 false", "false @0 0 false", "true old@3 0 false", "false @0 0 true", "false @0 0 false", "false @0 -2 false",
		"true 5@1 0 false", "false @0 0 false", "false @0 0 false", "false @0 0 false", "false @0 3 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if s.changes() != "k 4, -gone 4, n 4, new 4, m 4" {
		t.Errorf("events: got %s", s.changes())
	}
	s.wantKeys("k m n new")
	res = s.want(fsmpb.Result_OK, otherwise(txnOp(conditions(number("k", mod, eq, 3)), part(putOp("wrong", ""))), part(addOp("m", 1)), part(putOp("else", ""))))
	if res.Succeeded || res.Revision != 5 || len(res.Answers) != 2 || res.Answers[0].Number != 4 {
		t.Errorf("else: got %v", res)
	}
	s.wantKeys("else k m n new")
}

// What changes nothing has no revision of its own: its answer is as of the shard's.
func TestMachine_Txn_ChangesNothing(t *testing.T) {
	s := owned(t)
	s.do(putOp("a", ""), putOp("b", ""))
	for name, op := range map[string]*fsmpb.Op{
		"Empty":        txnOp(nil),
		"Reads":        txnOp(nil, readPart("a"), readPart("c")),
		"DeletesNone":  txnOp(nil, part(deleteOp("c"))),
		"EmptyElse":    txnOp(conditions(number("a", exists, eq, 0)), part(putOp("a", ""))),
		"NoConditions": otherwise(txnOp(nil), part(putOp("a", ""))),
	} {
		res := s.want(fsmpb.Result_OK, op)
		if res.Revision != 2 || s.m.Revision() != 2 || s.last.Events != nil || res.Succeeded == (name == "EmptyElse") {
			t.Errorf("%s: got %v at %d, events %v; want nothing done, at 2", name, res, s.m.Revision(), s.last.Events)
		}
	}
}

// A transaction that fails in one operation does nothing of all, wherever that stands, and says why.
func TestMachine_Txn_FailsWhole(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.do(putOp("text", "five"), putOp("top", fmt.Sprint(math.MaxInt64)), putOp("k", "old"))
	before := stored(t, s.db, s.m.home.sp, kindRecord, kindHistory)
	for i, bad := range []*fsmpb.Op{addOp("text", 1), addOp("top", 1)} {
		for at := range 3 {
			parts := []*fsmpb.TxnOp{part(putOp("k", "new")), part(deleteOp("k2")), part(addOp("n", 1))}
			parts[at] = part(bad)
			res := s.want(fsmpb.Result_INVALID, by(id, uint64(10*i+at+1), 0, txnOp(nil, parts...)))
			if res.Reason == "" || res.Succeeded || res.Answers != nil {
				t.Errorf("got %v, want a reason alone", res)
			}
			s.want(fsmpb.Result_INVALID, by(id, uint64(10*i+at+1), 0, txnOp(nil, parts...)))
		}
	}
	if diff := cmp.Diff(before, stored(t, s.db, s.m.home.sp, kindRecord, kindHistory)); diff != "" || s.m.Revision() != 3 {
		t.Errorf("at %d (-before +after):\n%s", s.m.Revision(), diff)
	}
}

// Add takes decimal numbers of 64 bits and nothing else, keeps what the record depends on, and answers the sum.
func TestMachine_Add(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	for _, c := range []struct {
		value string
		delta int64
		want  string // empty: refused
	}{
		{"0", 5, "5"}, {"-3", 2, "-1"}, {"7", -7, "0"}, {"12", 0, "12"},
		{"9223372036854775806", 1, "9223372036854775807"}, {"9223372036854775807", 1, ""}, {"9223372036854775807", math.MaxInt64, ""},
		{"9223372036854775807", math.MinInt64, "-1"}, {"9223372036854775808", -1, ""}, {"9223372036854775807", 0, "9223372036854775807"},
		{"-9223372036854775807", -1, "-9223372036854775808"}, {"-9223372036854775808", -1, ""}, {"-9223372036854775808", math.MinInt64, ""},
		{"-9223372036854775808", math.MaxInt64, "-1"}, {"-9223372036854775809", 1, ""}, {"0", math.MinInt64, "-9223372036854775808"},
		{"", 1, ""}, {"x", 1, ""}, {" 1", 1, ""}, {"1.5", 1, ""}, {"0x10", 1, ""}, {"1_000", 1, ""}, {"1e3", 1, ""}, {strings.Repeat("9", MaxValue), 1, ""},
	} {
		s.do(putOp("k", c.value))
		rev := s.m.Revision()
		if c.want == "" {
			if res := s.want(fsmpb.Result_INVALID, addOp("k", c.delta)); res.Reason == "" || s.m.Revision() != rev {
				t.Errorf("%q + %d: got %v at %d", c.value, c.delta, res, s.m.Revision())
			}
			continue
		}
		res := s.want(fsmpb.Result_OK, addOp("k", c.delta))
		rec, err := s.m.Get([]byte("k"))
		if fmt.Sprint(res.Number) != c.want || string(rec.Value) != c.want || err != nil || Revision(res.Revision) != rev+1 || rec.Mod != rev+1 {
			t.Errorf("%q + %d: got %v, %q, %v; want %s", c.value, c.delta, res, rec.Value, err, c.want)
		}
	}
	s.do(ephemeralOp(id, 1, "e", "1"), ttlOp("t", "1", 5), deleteOp("k"))
	if res := s.do(addOp("e", 1), addOp("t", 1), addOp("new", -4)); res[0].Number != 2 || res[1].Number != 2 || res[2].Number != -4 {
		t.Errorf("got %v", res)
	}
	s.wantKeys(fmt.Sprintf("e@%d new t+5/0", id))
}

// The answers of a transaction are remembered whole up to a bound, and without the values beyond it.
func TestMachine_Txn_Remembered(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.do(putOp("a", strings.Repeat("v", keptAnswers-1)), putOp("b", "v"), putOp("c", "v"))
	for i, c := range []struct {
		keys    []string
		trimmed bool
	}{{[]string{"a"}, false}, {[]string{"a", "b"}, false}, {[]string{"a", "b", "c"}, true}, {[]string{"a", "a"}, true}} {
		op := func() *fsmpb.Op {
			op := txnOp(nil, part(addOp("n", 1)))
			for _, k := range c.keys {
				op.GetTxn().Then = append(op.GetTxn().Then, readPart(k))
			}
			return by(id, uint64(i)+1, 0, op)
		}
		first := s.want(fsmpb.Result_OK, op())
		if first.Trimmed || len(first.Answers[1].Record.Value) != keptAnswers-1 {
			t.Errorf("%v: first answer is trimmed: %v", c.keys, first.Trimmed)
		}
		kept := s.want(fsmpb.Result_OK, op())
		if kept.Trimmed != c.trimmed || !kept.Succeeded || kept.Revision != first.Revision || kept.Answers[0].Number != int64(i)+1 {
			t.Errorf("%v: copy got trimmed %v at %d, number %d; want %v at %d, %d", c.keys, kept.Trimmed, kept.Revision, kept.Answers[0].Number,
				c.trimmed, first.Revision, i+1)
		}
		for j, a := range kept.Answers[1:] {
			want := len(first.Answers[j+1].Record.Value)
			if c.trimmed {
				want = 0
			}
			if !a.Found || len(a.Record.Value) != want || a.Record.Mod != first.Answers[j+1].Record.Mod || string(a.Record.Key) != c.keys[j] {
				t.Errorf("%v: copy's answer %d: got %d bytes at %d, want %d", c.keys, j, len(a.Record.Value), a.Record.Mod, want)
			}
		}
	}
}

// What a transaction reads beyond what fits into one message is left out of its first answer too, which says so.
func TestMachine_Txn_LargeAnswers(t *testing.T) {
	s := owned(t)
	var reads []*fsmpb.TxnOp
	for i := range maxAnswers/MaxValue + 1 {
		key := fmt.Sprint(i)
		s.do(putOp(key, strings.Repeat("v", MaxValue)))
		reads = append(reads, &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Read{Read: &fsmpb.Read{Key: []byte(key)}}})
	}
	for n, trimmed := range map[int]bool{len(reads) - 1: false, len(reads): true} {
		res := s.do(&fsmpb.Op{Kind: &fsmpb.Op_Txn{Txn: &fsmpb.Txn{Then: reads[:n]}}})[0]
		if res.Status != fsmpb.Result_OK || res.Trimmed != trimmed || len(res.Answers) != n || (len(res.Answers[0].Record.Value) == 0) != trimmed || !res.Answers[n-1].Found {
			t.Errorf("%d reads of the largest values: trimmed %v, want %v; %v", n, res.Trimmed, trimmed, res.Status)
		}
	}
}
