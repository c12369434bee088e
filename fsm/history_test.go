package fsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// line is a change as text: "revision time key: before > after".
func line(c Change) string {
	side := func(r *Record) string {
		if r == nil {
			return "-"
		}
		return fmt.Sprintf("%s c%d m%d v%d s%d t%d", r.Value, r.Create, r.Mod, r.Version, r.Session, r.TTL)
	}
	to := "-"
	if !c.Deleted {
		to = side(&c.Record)
	}
	return fmt.Sprintf("%d @%d %s: %s > %s", c.Revision, c.At, c.Record.Key, side(c.Prev), to)
}

func lines(cs []Change) (got []string) {
	for _, c := range cs {
		got = append(got, line(c))
	}
	return got
}

// at applies operations under one clock.
func (s *shard) at(clock int64, ops ...*fsmpb.Op) {
	s.t.Helper()
	e := batchEntry(s.stamp, ops...)
	e.GetBatch().At = clock
	s.entry(e)
}

// chronicle is a shard whose history has a bit of everything.
func chronicle(t testing.TB) (*shard, Token) {
	s := owned(t)
	id := s.session("n")
	s.at(100, putOp("a/1", "x"), putOp("b", "1"))
	s.at(-5, ephemeralOp(id, 1, "a/2", "e"), ttlOp("a/1", "y", 9))
	s.do(deleteOp("a/1"))
	s.at(300, txnOp(nil, part(putOp("c", "")), part(deleteOp("b")), part(putOp("a/1", "z"))))
	s.at(400, addOp("n", 3), endOp(id), prefixOp("a"))
	return s, id
}

// Changes tells each change with what was before and after it, when it was, in order; a deletion has only its key.
func TestMachine_Changes(t *testing.T) {
	s, id := chronicle(t)
	all := []string{
		"1 @100 a/1: - > x c1 m1 v1 s0 t0",
		"2 @100 b: - > 1 c2 m2 v1 s0 t0",
		fmt.Sprintf("3 @-5 a/2: - > e c3 m3 v1 s%d t0", id),
		"4 @-5 a/1: x c1 m1 v1 s0 t0 > y c1 m4 v2 s0 t9",
		"5 @0 a/1: y c1 m4 v2 s0 t9 > -",
		"6 @300 c: - >  c6 m6 v1 s0 t0",
		"6 @300 b: 1 c2 m2 v1 s0 t0 > -",
		"6 @300 a/1: - > z c6 m6 v1 s0 t0",
		"7 @400 n: - > 3 c7 m7 v1 s0 t0",
		fmt.Sprintf("8 @400 a/2: e c3 m3 v1 s%d t0 > -", id),
		"9 @400 a/1: z c6 m6 v1 s0 t0 > -",
	}
	page, err := s.m.Changes(ChangesQuery{From: 1})
	if diff := cmp.Diff(all, lines(page.Changes)); diff != "" || err != nil || page.Next != 10 || page.Revision != 9 {
		t.Errorf("next %d at %d, %v (-want +got):\n%s", page.Next, page.Revision, err, diff)
	}
	gone := page.Changes[4].Record
	if string(gone.Key) != "a/1" || gone.Mod != 5 || gone.Value != nil || gone.Create != 0 || gone.Version != 0 {
		t.Errorf("deleted: got %+v, want its key and revision", gone)
	}
	for _, c := range []struct {
		q    ChangesQuery
		want []int
		next Revision
	}{
		{ChangesQuery{From: 10}, nil, 10},
		{ChangesQuery{From: 9}, []int{10}, 10},
		{ChangesQuery{From: 1, Limit: 1}, []int{0}, 2},
		{ChangesQuery{From: 5, Limit: 2}, []int{4, 5, 6, 7}, 7},
		{ChangesQuery{From: 6, Limit: 1}, []int{5, 6, 7}, 7},
		{ChangesQuery{From: 6, Limit: 3}, []int{5, 6, 7}, 7},
		{ChangesQuery{From: 6, Limit: 4}, []int{5, 6, 7, 8}, 8},
		{ChangesQuery{From: 6, Bytes: 1}, []int{5, 6, 7}, 7},
		{ChangesQuery{From: 1, Bytes: 1 << 20}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10},
		{ChangesQuery{From: 1, Prefix: []byte("a/")}, []int{0, 2, 3, 4, 7, 9, 10}, 10},
		{ChangesQuery{From: 1, Prefix: []byte("a/"), Limit: 5}, []int{0, 2, 3, 4, 7}, 7},
		{ChangesQuery{From: 2, Prefix: []byte("a/1"), Limit: 1}, []int{3}, 5},
		{ChangesQuery{From: 1, Prefix: []byte("b")}, []int{1, 6}, 10},
		{ChangesQuery{From: 1, Prefix: []byte("none")}, nil, 10},
	} {
		page, err := s.m.Changes(c.q)
		var want []string
		for _, i := range c.want {
			want = append(want, all[i])
		}
		if diff := cmp.Diff(want, lines(page.Changes)); diff != "" || err != nil || page.Next != c.next || page.Revision != 9 {
			t.Errorf("%+v: next %d, want %d, %v (-want +got):\n%s", c.q, page.Next, c.next, err, diff)
		}
	}
	for _, from := range []Revision{11, 12, ^Revision(0)} {
		if _, err := s.m.Changes(ChangesQuery{From: from}); !errors.Is(err, ErrFuture) {
			t.Errorf("from %d: got %v, want ErrFuture", from, err)
		}
	}
	if _, err := s.m.Changes(ChangesQuery{}); !errors.Is(err, ErrCompacted) {
		t.Errorf("from 0: got %v, want ErrCompacted", err)
	}
}

// A long stretch of other keys does not hold up a call: it ends, with where to go on, and goes on to the end.
func TestMachine_Changes_Bounded(t *testing.T) {
	s := owned(t)
	var es []*fsmpb.Entry
	for range 3 {
		var ops []*fsmpb.Op
		for range lookedAt {
			ops = append(ops, putOp("other", "v"))
		}
		es = append(es, batchEntry(s.stamp, ops...))
	}
	s.raw(append(es, batchEntry(s.stamp, putOp("mine", "v")))...)
	calls, found := 0, 0
	for next := Revision(1); next <= s.m.Revision(); calls++ {
		page, err := s.m.Changes(ChangesQuery{Prefix: []byte("mine"), From: next})
		if err != nil || page.Next <= next || page.Next-next > lookedAt {
			t.Fatalf("from %d: got next %d, %v", next, page.Next, err)
		}
		found, next = found+len(page.Changes), page.Next
	}
	if calls != 4 || found != 1 {
		t.Errorf("got %d changes in %d calls, want 1 in 4", found, calls)
	}
	big := owned(t)
	var ops []*fsmpb.Op
	for range lookedAtBytes/MaxValue + 2 { // some are of two values
		ops = append(ops, putOp("other", strings.Repeat("v", MaxValue)))
	}
	big.raw(batchEntry(big.stamp, ops...))
	if page, err := big.m.Changes(ChangesQuery{Prefix: []byte("mine"), From: 1}); err != nil || page.Next > lookedAtBytes/MaxValue+1 {
		t.Errorf("large values: got next %d, %v; want it to end before %d", page.Next, err, lookedAtBytes/MaxValue+1)
	}
}

// History is what happened to one key, newest first, through deletion and making again, as far as it is kept.
func TestMachine_History(t *testing.T) {
	s, id := chronicle(t)
	a1 := []string{"9 @400 a/1: z c6 m6 v1 s0 t0 > -", "6 @300 a/1: - > z c6 m6 v1 s0 t0", "5 @0 a/1: y c1 m4 v2 s0 t9 > -",
		"4 @-5 a/1: x c1 m1 v1 s0 t0 > y c1 m4 v2 s0 t9", "1 @100 a/1: - > x c1 m1 v1 s0 t0"}
	check := func(key string, before Revision, limit int, want []string) {
		t.Helper()
		cs, err := s.m.History([]byte(key), before, limit)
		if diff := cmp.Diff(want, lines(cs)); diff != "" || err != nil {
			t.Errorf("history of %q before %d, %d: %v (-want +got):\n%s", key, before, limit, err, diff)
		}
	}
	check("a/1", 0, 0, a1)
	check("a/1", 0, 1, a1[:1])
	check("a/1", 0, 4, a1[:4])
	check("a/1", 9, 2, a1[1:3])
	check("a/1", 10, 1, a1[:1])
	check("a/1", 6, 0, a1[2:])
	check("a/1", 5, 1, a1[3:4])
	check("a/1", 1, 0, nil)
	check("a/1", ^Revision(0), 1, a1[:1])
	check("n", 0, 0, []string{"7 @400 n: - > 3 c7 m7 v1 s0 t0"})
	check("a/2", 0, 0, []string{fmt.Sprintf("8 @400 a/2: e c3 m3 v1 s%d t0 > -", id), fmt.Sprintf("3 @-5 a/2: - > e c3 m3 v1 s%d t0", id)})
	check("never", 0, 0, nil)
	check("", 0, 0, nil)
	check(strings.Repeat("k", MaxKey+1), 0, 0, nil)
	s.do(putOp("a/1", "back"))
	a1 = append([]string{"10 @0 a/1: - > back c10 m10 v1 s0 t0"}, a1...)
	check("a/1", 0, 0, a1)
	for oldest := Revision(2); oldest <= 11; oldest++ {
		s.do(compactOp(oldest))
		kept := len(a1)
		for kept > 0 && s.m.Oldest() > revisionOf(t, a1[kept-1]) {
			kept--
		}
		check("a/1", 0, 0, append([]string(nil), a1[:kept]...))
	}
}

func revisionOf(t *testing.T, line string) (rev Revision) {
	t.Helper()
	if _, err := fmt.Sscan(line, &rev); err != nil {
		t.Fatal(err)
	}
	return rev
}

// A deletion of many records, and the end of a session with many, each have one revision, which no page splits.
func TestMachine_Changes_WholeRevisions(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	for i := range 30 {
		s.do(putOp(fmt.Sprintf("p/%02d", i), "v"), ephemeralOp(id, uint64(i)+1, fmt.Sprintf("e/%02d", i), "v"))
	}
	s.do(prefixOp("p/"), endOp(id))
	for limit := 1; limit < 70; limit++ {
		var got []string
		for next := Revision(1); next <= s.m.Revision(); {
			page, err := s.m.Changes(ChangesQuery{From: next, Limit: limit})
			if err != nil || len(page.Changes) == 0 || page.Next <= next {
				t.Fatalf("from %d: got %+v, %v", next, page, err)
			}
			if len(page.Changes) > limit+29 || page.Changes[0].Revision != next || page.Changes[len(page.Changes)-1].Revision != page.Next-1 {
				t.Fatalf("limit %d from %d: got %d changes, of %d to %d, next %d", limit, next, len(page.Changes), page.Changes[0].Revision,
					page.Changes[len(page.Changes)-1].Revision, page.Next)
			}
			got, next = append(got, lines(page.Changes)...), page.Next
		}
		if len(got) != 120 {
			t.Fatalf("limit %d: got %d changes, want 120", limit, len(got))
		}
	}
}

// A revision that is too large for one page is split, and what Skip says goes on with its next change, without loss or repetition.
func TestMachine_Changes_SplitsTheLargest(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	const n = 20
	for i := range n {
		s.do(ephemeralOp(id, uint64(i)+1, fmt.Sprintf("e/%02d", i), strings.Repeat("v", MaxValue)))
	}
	s.do(endOp(id))
	end := s.m.Revision()
	var got []string
	pages := 0
	for q := (ChangesQuery{From: end, Bytes: 1 << 20}); q.From <= end; pages++ {
		page, err := s.m.Changes(q)
		if err != nil || page.Next == q.From && page.Skip <= q.Skip {
			t.Fatalf("%+v: got next %d after %d, %v", q, page.Next, page.Skip, err)
		}
		size := 0
		for _, c := range page.Changes {
			got = append(got, string(c.Record.Key))
			size += len(c.Prev.Value)
		}
		if size > splitAtBytes+MaxValue {
			t.Errorf("a page has %d bytes", size)
		}
		q.From, q.Skip = page.Next, page.Skip
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("e/%02d", i))
	}
	if diff := cmp.Diff(want, got); diff != "" || pages < 3 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}
}
