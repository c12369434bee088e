package fsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Each change has a revision of its own; a record counts its changes and starts anew after a deletion.
func TestMachine_Put(t *testing.T) {
	s := owned(t)
	s.do(putOp("k", "1"), putOp("other", ""), putOp("k", "2"))
	s.do(putOp("k", "3"))
	rec, err := s.m.Get([]byte("k"))
	want := Record{Key: []byte("k"), Value: []byte("3"), Create: 1, Mod: 4, Version: 3}
	if diff := cmp.Diff(want, rec); diff != "" || err != nil {
		t.Errorf("k: %v (-want +got):\n%s", err, diff)
	}
	if res := s.want(fsmpb.Result_OK, deleteOp("k")); res.Revision != 5 {
		t.Errorf("delete: got revision %d, want 5", res.Revision)
	}
	if diff := cmp.Diff([]Event{{Kind: Changed, Name: []byte("k"), Revision: 5, Deleted: true}}, s.last.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if _, err := s.m.Get([]byte("k")); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: got %v, want ErrNotFound", err)
	}
	if res := s.want(fsmpb.Result_OK, deleteOp("k")); res.Revision != 0 || s.m.Revision() != 5 || s.last.Events != nil {
		t.Errorf("delete of nothing: got revision %d, machine %d; want 0, 5", res.Revision, s.m.Revision())
	}
	s.do(putOp("k", "4"))
	if rec, _ := s.m.Get([]byte("k")); rec.Create != 6 || rec.Version != 1 {
		t.Errorf("made again: got %+v, want create 6, version 1", rec)
	}
}

// Operations of one batch, and of one Apply, see what those before them changed.
func TestMachine_Put_SeenWithinBatch(t *testing.T) {
	s := owned(t)
	res := s.do(putOp("k", "1"), casOp("k", 1, "2"), casOp("k", 1, "3"), deleteOp("k"), casOp("k", 2, "4"), casOp("k", 0, "5"))
	var got []string
	for _, r := range res {
		got = append(got, fmt.Sprint(r.Status, r.Revision, r.GetRecord().GetMod()))
	}
	want := []string{"OK 1 0", "OK 2 0", "CONFLICT 0 2", "OK 3 0", "CONFLICT 0 0", "OK 4 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// CompareAndSwap writes only over the expected revision, and answers a conflict with the current record.
func TestMachine_CompareAndSwap(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.want(fsmpb.Result_CONFLICT, casOp("k", 7, "x"))
	s.want(fsmpb.Result_OK, casOp("k", 0, "1"))
	res := s.want(fsmpb.Result_CONFLICT, casOp("k", 0, "x"))
	if res.Record == nil || string(res.Record.Value) != "1" || res.Record.Mod != 1 {
		t.Errorf("conflict: got %v, want the record at 1", res.Record)
	}
	s.want(fsmpb.Result_OK, casOp("k", 1, strings.Repeat("v", keptValue+1)))
	big := s.want(fsmpb.Result_CONFLICT, by(id, 1, 0, casOp("k", 1, "x")))
	if len(big.Record.Value) != keptValue+1 || big.Trimmed {
		t.Errorf("large conflict: got %d bytes, trimmed %v; want all", len(big.Record.Value), big.Trimmed)
	}
	kept := s.want(fsmpb.Result_CONFLICT, by(id, 1, 0, casOp("k", 1, "x")))
	if !kept.Trimmed || kept.Record.Value != nil || kept.Record.Mod != 2 {
		t.Errorf("its copy: got %v, want it trimmed, at 2", kept)
	}
}

// Limits are refused as results; at the limit all is well.
func TestMachine_Put_Limits(t *testing.T) {
	s := owned(t)
	for _, c := range []struct {
		op   *fsmpb.Op
		want fsmpb.Result_Status
	}{
		{putOp("", "v"), fsmpb.Result_INVALID},
		{putOp(strings.Repeat("k", MaxKey+1), "v"), fsmpb.Result_INVALID},
		{putOp(strings.Repeat("k", MaxKey), "v"), fsmpb.Result_OK},
		{putOp("k", strings.Repeat("v", MaxValue)), fsmpb.Result_OK},
		{putOp("k", strings.Repeat("v", MaxValue+1)), fsmpb.Result_INVALID},
		{casOp("", 0, ""), fsmpb.Result_INVALID},
		{casOp("l", 0, strings.Repeat("v", MaxValue+1)), fsmpb.Result_INVALID},
		{deleteOp(""), fsmpb.Result_INVALID},
	} {
		s.want(c.want, c.op)
	}
	if rec, err := s.m.Get([]byte("k")); err != nil || len(rec.Value) != MaxValue {
		t.Errorf("k: got %d bytes, %v; want %d", len(rec.Value), err, MaxValue)
	}
}

// Listings are in the order of keys, bounded by prefix, cursor and limit, and never leave the shard's own records.
func TestMachine_List(t *testing.T) {
	s := owned(t)
	neighbour, err := Open(s.db, 8, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &shard{t: t, db: s.db, m: neighbour}
	n.claim("a", 1)
	n.do(putOp("a/9", ""), putOp("\xff\xff", ""))
	s.do(putOp("a/2", ""), putOp("a/1", ""), putOp("b", ""), putOp("a/3", ""), putOp("a", ""), putOp("\xff", ""), putOp("\xff\x00", ""))
	for _, c := range []struct {
		q    ListQuery
		want string
	}{
		{ListQuery{}, "a a/1 a/2 a/3 b \xff \xff\x00"},
		{ListQuery{Reverse: true}, "\xff\x00 \xff b a/3 a/2 a/1 a"},
		{ListQuery{From: []byte("a/"), To: []byte("a0")}, "a/1 a/2 a/3"},
		{ListQuery{From: []byte("a/"), To: []byte("a0"), Reverse: true, Limit: 2}, "a/3 a/2 ..."},
		{ListQuery{From: []byte("a/"), To: []byte("a/2"), Reverse: true, Limit: 2}, "a/1"},
		{ListQuery{From: []byte("a/"), To: []byte("a0"), Limit: 2}, "a/1 a/2 ..."},
		{ListQuery{From: []byte("a/2\x00"), To: []byte("a0"), Limit: 2}, "a/3"},
		{ListQuery{From: []byte("a/3"), Limit: 1}, "a/3 ..."},
		{ListQuery{From: []byte("b"), To: []byte("a")}, ""},
		{ListQuery{From: []byte("\xff")}, "\xff \xff\x00"},
		{ListQuery{From: []byte("\xff\x00")}, "\xff\x00"},
		{ListQuery{To: []byte("a/")}, "a"},
		{ListQuery{From: []byte("c"), To: []byte("d")}, ""},
	} {
		page, err := s.m.List(c.q)
		var keys []string
		for _, r := range page.Records {
			keys = append(keys, string(r.Key))
		}
		if page.More {
			keys = append(keys, "...")
		}
		if got := strings.Join(keys, " "); got != c.want || err != nil || page.Revision != 7 {
			t.Errorf("list %+v: got %q at %d, %v; want %q at 7", c.q, got, page.Revision, err, c.want)
		}
	}
}
