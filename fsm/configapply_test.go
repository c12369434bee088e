package fsm

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// stocked is a shard with records of all sorts, and a living session's id.
//
//	e/1     goes with the session, 1
//	n       5, a number, 2
//	p/1..3  3 to 5
//	t/1     has a TTL, 6
func stocked(t testing.TB) (*shard, Token) {
	s := owned(t)
	id := s.session("n")
	s.do(ephemeralOp(id, 1, "e/1", "here"), putOp("n", "5"), putOp("p/1", "1"), putOp("p/2", "2"), putOp("p/3", "3"), ttlOp("t/1", "x", 9))
	return s, id
}

// configOps are all operations on config records, each of which changes what stocked made.
func configOps() map[string]func() *fsmpb.Op {
	cas := func() *fsmpb.Op {
		op := casOp("t/1", 6, "y")
		op.GetCompareAndSwap().Ttl = 8
		return op
	}
	ephemeral := func() *fsmpb.Op {
		op := casOp("e/1", 1, "y")
		op.GetCompareAndSwap().Ephemeral = true
		return op
	}
	return map[string]func() *fsmpb.Op{
		"Put":                 func() *fsmpb.Op { return putOp("e/1", "v") },
		"PutWithTTL":          func() *fsmpb.Op { return ttlOp("n", "6", 7) },
		"PutEphemeral":        func() *fsmpb.Op { return ephemeralOp(0, 0, "p/1", "v") },
		"Delete":              func() *fsmpb.Op { return deleteOp("t/1") },
		"CompareAndSwap":      cas,
		"CompareAndSwapOwned": ephemeral,
		"DeletePrefix":        func() *fsmpb.Op { return prefixOp("p/") },
		"Add":                 func() *fsmpb.Op { return addOp("n", 2) },
		"Txn": func() *fsmpb.Op {
			return txnOp(conditions(value("n", fsmpb.Condition_EQUAL, "5")), part(putOp("p/1", "v")), part(deleteOp("e/1")), readPart("n"))
		},
		"ExpireRecords": func() *fsmpb.Op { return expireOp(ref("t/1", 6, 0)) },
		"AgeRecords":    func() *fsmpb.Op { return ageOp(ref("t/1", 6, 4)) },
		"Compact":       func() *fsmpb.Op { return compactOp(4) },
	}
}

// An operation whose guard is not current changes nothing at all; with a current one it does what it does. Either way a copy gets
// the first answer and changes nothing.
func TestMachine_Apply_ConfigGuardsAndCopies(t *testing.T) {
	for name, op := range configOps() {
		t.Run(name, func(t *testing.T) {
			s, id := stocked(t)
			fenced := func(seq uint64) *fsmpb.Op {
				return guarded(by(id, seq, seq-1, op()), fsmpb.Guard_LOCK, "x", 99)
			}
			before := stored(t, s.db, s.m.home.sp, kindRecord, kindHistory)
			counters := s.m.st.counters
			s.want(fsmpb.Result_FENCED, fenced(2))
			s.want(fsmpb.Result_FENCED, fenced(2))
			if diff := cmp.Diff(before, stored(t, s.db, s.m.home.sp, kindRecord, kindHistory)); diff != "" || s.m.st.counters != counters || s.last.Events != nil {
				t.Fatalf("fenced: counters %+v, events %v (-before +after):\n%s", s.m.st.counters, s.last.Events, diff)
			}
			current := func() *fsmpb.Op { return guarded(by(id, 3, 2, op()), fsmpb.Guard_SESSION, "", id) }
			h := hash(t, s.m)
			first := s.want(fsmpb.Result_OK, current())
			after := hash(t, s.m)
			if after == h {
				t.Fatal("nothing changed")
			}
			copied := s.want(fsmpb.Result_OK, current())
			if !proto.Equal(first, copied) || hash(t, s.m) != after || s.last.Events != nil {
				t.Errorf("copy: got %v, events %v; want %v and no change", copied, s.last.Events, first)
			}
			again, err := Open(s.db, 7, 3, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if res, ok := again.Result(id, 3); !ok || !proto.Equal(first, res) {
				t.Errorf("remembered and read back: got %v, want %v", res, first)
			}
		})
	}
}

// Under a stale stamp, and by a session that has ended, nothing is done.
func TestMachine_Apply_ConfigUnauthorised(t *testing.T) {
	for name, op := range configOps() {
		s, id := stocked(t)
		h := hash(t, s.m)
		s.entry(batchEntry(s.stamp-1, by(id, 9, 1, op())))
		s.want(fsmpb.Result_NO_SESSION, by(id+50, 9, 1, op()))
		if hash(t, s.m) != h {
			t.Errorf("%s: the state changed", name)
		}
	}
}

// apply applies entries in one call, checks the state and returns all results as text.
func (s *shard) apply(es ...*fsmpb.Entry) []string {
	s.t.Helper()
	got := s.raw(es...)
	checkMirror(s.t, s.m)
	checkHistory(s.t, s.m)
	return got
}

// raw is apply without the checks, for bulk.
func (s *shard) raw(es ...*fsmpb.Entry) (got []string) {
	s.t.Helper()
	var in []Entry
	for _, e := range es {
		s.index++
		in = append(in, Entry{s.index, encode(s.t, e)})
	}
	done, err := s.m.Apply(in)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range done {
		for _, r := range a.Results {
			got = append(got, fmt.Sprintf("%v @%d #%d -%d %v", r.Status, r.Revision, r.Number, r.Deleted, r.Succeeded))
		}
	}
	return got
}

// Operations of one call see what those before them did, be it in the same entry or in another: one script, cut in all ways.
func TestMachine_Apply_ConfigInOneCall(t *testing.T) {
	script := func(id Token) ([]*fsmpb.Op, []string) {
		return []*fsmpb.Op{
				putOp("a/1", "1"), ephemeralOp(id, 2, "a/2", "x"), ttlOp("a/3", "3", 5), addOp("a/1", 4), prefixOp("a/"),
				putOp("a/1", "1"), ephemeralOp(id, 3, "a/1", "7"), addOp("a/1", 1), ephemeralOp(id, 4, "a/4", "x"), putOp("a/4", "stays"),
				txnOp(conditions(number("a/1", fsmpb.Condition_VERSION, fsmpb.Condition_EQUAL, 3)), part(deleteOp("e/1")), part(putOp("a/5", "5"))),
				endOp(id), ttlOp("t/2", "", 5), ttlOp("t/2", "", 6), expireOp(ref("t/2", 18, 0), ref("t/1", 6, 0)), expireOp(ref("t/2", 19, 0)),
				ageOp(ref("t/1", 6, 3)), compactOp(17), putOp("a/1", "again"), prefixOp(""),
			}, []string{
				"OK @7 #0 -0 false", "OK @8 #0 -0 false", "OK @9 #0 -0 false", "OK @10 #5 -0 false", "OK @11 #0 -3 false",
				"OK @12 #0 -0 false", "OK @13 #0 -0 false", "OK @14 #8 -0 false", "OK @15 #0 -0 false", "OK @16 #0 -0 false",
				"OK @17 #0 -0 true",
				"OK @18 #0 -0 false", "OK @19 #0 -0 false", "OK @20 #0 -0 false", "OK @21 #0 -1 false", "OK @0 #0 -0 false",
				"OK @0 #0 -0 false", "OK @0 #0 -0 false", "OK @22 #0 -0 false", "OK @23 #0 -8 false",
			}
	}
	var first []string
	for cut := range 4 {
		s, id := stocked(t)
		ops, want := script(id)
		var es []*fsmpb.Entry
		for len(ops) > 0 {
			n := min(len(ops), []int{len(ops), 1, 3, 7}[cut])
			es, ops = append(es, batchEntry(s.stamp, ops[:n]...)), ops[n:]
		}
		got := s.apply(es...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cut %d (-want +got):\n%s", cut, diff)
		}
		got = append(got, stored(t, s.db, s.m.home.sp, kindRecord, kindHistory)...)
		if cut == 0 {
			first = got
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("cut %d (-cut 0 +this):\n%s", cut, diff)
		}
	}
}
