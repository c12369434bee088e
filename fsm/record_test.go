package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// keys are the keys of all records, and what they depend on.
func (s *shard) keys() string {
	s.t.Helper()
	page, err := s.m.List(ListQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []string
	for _, r := range page.Records {
		line := string(r.Key)
		if r.Session != 0 {
			line += fmt.Sprint("@", r.Session)
		}
		if r.TTL != 0 {
			line += fmt.Sprint("+", int64(r.TTL), "/", int64(r.Age))
		}
		keys = append(keys, line)
	}
	return strings.Join(keys, " ")
}

func (s *shard) wantKeys(want string) {
	s.t.Helper()
	if got := s.keys(); got != want {
		s.t.Fatalf("records: got %q, want %q", got, want)
	}
}

// changes are the events of the last entry that tell of records, as "key revision", with a minus before what was deleted.
func (s *shard) changes() string {
	var got []string
	for _, e := range s.last.Events {
		if e.Kind == Changed {
			sign := map[bool]string{true: "-"}[e.Deleted]
			got = append(got, fmt.Sprintf("%s%s %d", sign, e.Name, e.Revision))
		}
	}
	return strings.Join(got, ", ")
}

// What a session has written as ephemeral goes with it, in the entry that ends it, however it ends, and nothing else does: not
// what another has taken over, nor what was written again without it.
func TestMachine_Put_Ephemeral(t *testing.T) {
	for name, end := range map[string]func(s *shard, a, b Token){
		"Closed": func(s *shard, a, b Token) {
			op := endOp(a)
			op.GetEndSessions().Expired = false
			s.do(op)
		},
		"ByItself": func(s *shard, a, b Token) { s.do(by(a, 90, 0, endOp(a))) },
		"Expired":  func(s *shard, a, b Token) { s.do(endOp(a)) },
		"Twice":    func(s *shard, a, b Token) { s.do(endOp(a, a, 12345), endOp(a)) },
		"Former": func(s *shard, a, b Token) {
			s.do(&fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: "a", Incarnation: 2}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := owned(t)
			a, b := s.session("a"), s.session("b")
			cas := by(a, 8, 0, casOp("cas", 0, "x"))
			cas.GetCompareAndSwap().Ephemeral = true
			inTxn := putOp("txn", "x")
			inTxn.GetPut().Ephemeral = true
			s.do(ephemeralOp(a, 1, "own/2", "x"), ephemeralOp(a, 2, "own/1", "x"), ephemeralOp(a, 3, "taken", "x"), ephemeralOp(b, 1, "other", "x"),
				ephemeralOp(a, 4, "kept", "x"), ephemeralOp(a, 5, "timed", "x"), ephemeralOp(a, 6, "gone", "x"), putOp("plain", "x"),
				ephemeralOp(a, 7, "plain", "now it goes with a"), cas, by(a, 9, 0, txnOp(nil, part(inTxn))))
			s.do(ephemeralOp(b, 2, "taken", "y"), putOp("kept", "y"), ttlOp("timed", "y", 5), deleteOp("gone"), addOp("other/n", 1),
				ephemeralOp(a, 10, "number", "1"), addOp("number", 2))
			s.wantKeys(fmt.Sprintf("cas@%d kept number@%d other@%d other/n own/1@%d own/2@%d plain@%d taken@%d timed+5/0 txn@%d", a, a, b, a, a, a, b, a))
			end(s, a, b)
			s.wantKeys(fmt.Sprintf("kept other@%d other/n taken@%d timed+5/0", b, b))
			if s.m.Revision() != 19 {
				t.Errorf("revision: got %d, want all of them under 19", s.m.Revision())
			}
			s.do(endOp(b))
			s.wantKeys("kept other/n timed+5/0")
			if got := s.changes(); got != "-other 20, -taken 20" {
				t.Errorf("events: got %s", got)
			}
		})
	}
}

// Records of several sessions that end together go under one revision, by session and then by key, before names are granted.
func TestMachine_EndSessions_EphemeralOrder(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	s.do(lockOp(a, 1, "x"), lockOp(c, 1, "x"), ephemeralOp(b, 2, "1", ""), ephemeralOp(a, 2, "3", ""), ephemeralOp(a, 3, "2", ""))
	res := s.do(endOp(b, a))[0]
	if got := s.changes(); got != "-2 4, -3 4, -1 4" || res.Revision != 4 {
		t.Errorf("events: got %s, revision %d; want 2, 3 and 1 under 4", got, res.Revision)
	}
	deleted, granted := -1, -1
	for i, e := range s.last.Events {
		switch e.Kind {
		case Changed:
			deleted = i
		case Granted:
			granted = i
		}
	}
	if granted < deleted {
		t.Errorf("events: granted at %d, the last record went at %d", granted, deleted)
	}
	if res := s.do(endOp(c))[0]; res.Revision != 0 || s.m.Revision() != 4 {
		t.Errorf("end of who has no records: got revision %d", res.Revision)
	}
}

// A record with a TTL is expired by key and revision only; a change of any kind since makes it stay.
func TestMachine_ExpireRecords(t *testing.T) {
	s := owned(t)
	s.do(ttlOp("a", "", 5), ttlOp("b", "", 5), ttlOp("c", "", 5), ttlOp("d", "", 5), putOp("plain", ""), ttlOp("n", "1", 5))
	s.do(ttlOp("b", "", 5), putOp("c", ""), deleteOp("d"), ttlOp("d", "", 5), addOp("n", 1))
	res := s.do(expireOp(ref("a", 1, 0), ref("a", 1, 0), ref("b", 2, 0), ref("c", 3, 0), ref("c", 8, 0), ref("d", 4, 0), ref("plain", 5, 0),
		ref("n", 6, 0), ref("absent", 1, 0)))[0]
	if res.Status != fsmpb.Result_OK || res.Deleted != 1 || res.Revision != 12 || res.More || s.changes() != "-a 12" {
		t.Errorf("got %v, events %s; want a alone, under 12", res, s.changes())
	}
	s.wantKeys("b+5/0 c d+5/0 n+5/0 plain")
	if res := s.do(expireOp(ref("b", 2, 0), ref("a", 1, 0)))[0]; res.Deleted != 0 || res.Revision != 0 || s.m.Revision() != 12 {
		t.Errorf("nothing to expire: got %v", res)
	}
	if res := s.do(expireOp(ref("n", 11, 0), ref("d", 10, 0), ref("b", 7, 0)))[0]; res.Deleted != 3 || s.changes() != "-n 13, -d 13, -b 13" {
		t.Errorf("got %v, events %s; want three under 13, in the order of the operation", res, s.changes())
	}
	s.wantKeys("c plain")
}

// What one ExpireRecords removes is bounded by its size, whatever an owner asks for; what is left is removed by asking again.
func TestMachine_ExpireRecords_Bytes(t *testing.T) {
	s := owned(t)
	var refs []*fsmpb.RecordRef
	var ops []*fsmpb.Op
	for i := range 10 {
		ops = append(ops, ttlOp(fmt.Sprint(i), strings.Repeat("v", MaxValue), 5))
		refs = append(refs, ref(fmt.Sprint(i), Revision(i+1), 0))
	}
	s.raw(batchEntry(s.stamp, ops...))
	const most = MaxDeletedBytes / MaxValue
	if res := s.do(expireOp(refs...))[0]; res.Deleted != most || !res.More {
		t.Errorf("got %v, want %d and more", res, most)
	}
	if res := s.do(expireOp(refs...))[0]; res.Deleted != 10-most || res.More {
		t.Errorf("again: got %v, want %d", res, 10-most)
	}
}

// A recorded age only rises, up to the TTL, and only while the record is as the owner saw it. It is no change: it has neither
// revision nor event. Every change makes the record young again.
func TestMachine_AgeRecords(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	s.do(ttlOp("a", "1", 9), ttlOp("b", "1", 9), putOp("p", ""), ephemeralOp(id, 1, "e", ""))
	for _, c := range []struct {
		op   *fsmpb.Op
		want string
	}{
		{ageOp(ref("a", 1, 4), ref("b", 2, 0), ref("p", 3, 4), ref("e", 4, 4), ref("absent", 1, 4)), "a+9/4 b+9/0"},
		{ageOp(ref("a", 1, 3)), "a+9/4 b+9/0"},
		{ageOp(ref("a", 2, 5), ref("b", 1, 5)), "a+9/4 b+9/0"},
		{ageOp(ref("a", 1, 5), ref("a", 1, 6)), "a+9/6 b+9/0"},
		{ageOp(ref("b", 2, 8), ref("a", 1, 10)), "a+9/9 b+9/8"},
		{ageOp(ref("a", 1, 1<<60)), "a+9/9 b+9/8"},
		{ttlOp("a", "1", 9), "a+9/0 b+9/8"},
		{addOp("b", 1), "a+9/0 b+9/0"},
		{ageOp(ref("a", 5, 9), ref("b", 6, 2)), "a+9/9 b+9/2"},
		{txnOp(nil, part(addOp("a", 1)), part(ttlOp("b", "", 7))), "a+9/0 b+7/0"},
	} {
		before := s.m.Revision()
		s.want(fsmpb.Result_OK, c.op)
		s.wantKeys(fmt.Sprintf("%s e@%d p", c.want, id))
		if c.op.GetAgeRecords() != nil && (s.m.Revision() != before || s.last.Events != nil) {
			t.Errorf("%v: revision %d after %d, events %v; want no change", c.op, s.m.Revision(), before, s.last.Events)
		}
	}
}

// A write tells the TTL, so that an owner can time it without a read. Listed are the records that have one, and no others, however
// many there are.
func TestMachine_Expiring(t *testing.T) {
	s := owned(t)
	s.do(ttlOp("b", "", 7), ttlOp("a", "", 5), putOp("c", ""), ttlOp("d", "", 5), ttlOp("e", "", 5))
	if diff := cmp.Diff([]time.Duration{7, 5, 0, 5, 5}, []time.Duration{s.last.Events[0].TTL, s.last.Events[1].TTL, s.last.Events[2].TTL,
		s.last.Events[3].TTL, s.last.Events[4].TTL}); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.do(deleteOp("d"), putOp("e", ""), ageOp(ref("a", 2, 3)))
	var got []Timed
	for x, err := range s.m.Expiring {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x)
	}
	if diff := cmp.Diff([]Timed{{[]byte("a"), 2, 5, 3}, {[]byte("b"), 1, 7, 0}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var ops []*fsmpb.Op
	for i := range 2*expiringPiece + 1 {
		ops = append(ops, ttlOp(fmt.Sprintf("many/%05d", i), "", 1))
	}
	s.do(ops...)
	n, last := 0, []byte(nil)
	for x := range s.m.Expiring {
		if bytes.Compare(x.Key, last) <= 0 {
			t.Fatalf("%q after %q", x.Key, last)
		}
		n, last = n+1, x.Key
	}
	if want := 2*expiringPiece + 3; n != want {
		t.Errorf("got %d records, want %d", n, want)
	}
	n = 0
	for range s.m.Expiring {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("after a break: got %d records", n)
	}
}
