package fsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// DeletePrefix removes exactly the keys that begin with its prefix, and never anything else that is stored beside them.
func TestMachine_DeletePrefix(t *testing.T) {
	for _, c := range []struct{ prefix, stays, events string }{
		{"a/", "a a0 b \xff \xff\xff \xff\xffx", "-a/ 10, -a/1 10, -a/\xff 10"},
		{"a", "b \xff \xff\xff \xff\xffx", "-a 10, -a/ 10, -a/1 10, -a/\xff 10, -a0 10"},
		{"a/1", "a a/ a/\xff a0 b \xff \xff\xff \xff\xffx", "-a/1 10"},
		{"a/1/", "a a/ a/1 a/\xff a0 b \xff \xff\xff \xff\xffx", ""},
		{"\xff", "a a/ a/1 a/\xff a0 b", "-\xff 10, -\xff\xff 10, -\xff\xffx 10"},
		{"\xff\xff", "a a/ a/1 a/\xff a0 b \xff", "-\xff\xff 10, -\xff\xffx 10"},
		{"", "", "-a 10, -a/ 10, -a/1 10, -a/\xff 10, -a0 10, -b 10, -\xff 10, -\xff\xff 10, -\xff\xffx 10"},
		{strings.Repeat("\xff", MaxKey), "a a/ a/1 a/\xff a0 b \xff \xff\xff \xff\xffx", ""},
	} {
		s := owned(t)
		neighbour, err := Open(s.db, 8, 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		other := &shard{t: t, db: s.db, m: neighbour}
		other.claim("a", 1)
		other.do(putOp("a/", ""), putOp("\xff", ""))
		id := s.session("n")
		s.do(lockOp(id, 1, "a/"), lockOf(fsmpb.Lock_JOB, id, 2, "a/"))
		for _, k := range []string{"a/", "a", "b", "a/1", "a/\xff", "a0", "\xff", "\xff\xff", "\xff\xffx"} {
			s.do(putOp(k, "v"))
		}
		res := s.want(fsmpb.Result_OK, prefixOp(c.prefix))
		n := strings.Count(c.events, "-")
		if int(res.Deleted) != n || res.More || (res.Revision == 10) != (n > 0) || s.changes() != c.events {
			t.Errorf("%q: got %v, events %q; want %q", c.prefix, res, s.changes(), c.events)
		}
		s.wantKeys(c.stays)
		other.wantKeys("a/ \xff")
		if res := s.want(fsmpb.Result_OK, prefixOp(c.prefix)); res.Deleted != 0 || res.Revision != 0 || res.More {
			t.Errorf("%q again: got %v", c.prefix, res)
		}
	}
}

// One DeletePrefix removes MaxDeleted records and no more, the first ones, whether they were there before or came in the same
// entry; the next one goes on.
func TestMachine_DeletePrefix_Most(t *testing.T) {
	for _, over := range []int{-1, 0, 1, MaxDeleted + 7} {
		for _, atOnce := range []bool{false, true} {
			s := owned(t)
			var ops []*fsmpb.Op
			for i := range MaxDeleted + over {
				ops = append(ops, putOp(fmt.Sprintf("p/%05d", i), "v"))
			}
			if !atOnce {
				s.do(ops...)
				ops = nil
			}
			results := s.do(append(ops, prefixOp("p/"))...)
			res := results[len(results)-1]
			want := min(MaxDeleted, MaxDeleted+over)
			if int(res.Deleted) != want || res.More != (over > 0) {
				t.Errorf("%d over: got %d, more %v; want %d", over, res.Deleted, res.More, want)
			}
			if page, err := s.m.List(ListQuery{}); err != nil || len(page.Records) != max(over, 0) ||
				over > 0 && string(page.Records[0].Key) != fmt.Sprintf("p/%05d", MaxDeleted) {
				t.Errorf("%d over: left %d records, %v; want the last %d", over, len(page.Records), err, over)
			}
			for i := 0; res.More; i++ {
				if res = s.want(fsmpb.Result_OK, prefixOp("p/")); i > 2 {
					t.Fatal("it never ends")
				}
			}
			s.wantKeys("")
		}
	}
}

// Large values end a DeletePrefix earlier, but one record always goes.
func TestMachine_DeletePrefix_Bytes(t *testing.T) {
	const most = MaxDeletedBytes / MaxValue
	for _, c := range []struct {
		records, last int // the last one's size
		want          uint64
	}{{most, MaxValue, most}, {most + 1, 0, most + 1}, {most + 1, 1, most}} {
		s := owned(t)
		var ops []*fsmpb.Op
		for i := range c.records {
			size := MaxValue
			if i == c.records-1 {
				size = c.last
			}
			ops = append(ops, putOp(fmt.Sprint("p/", i), strings.Repeat("v", size)))
		}
		s.raw(batchEntry(s.stamp, ops...))
		if res := s.want(fsmpb.Result_OK, prefixOp("p/")); res.Deleted != c.want || res.More != (int(c.want) < c.records) {
			t.Errorf("%d records, the last of %d: got %d, more %v; want %d", c.records, c.last, res.Deleted, res.More, c.want)
		}
	}
}

// Compact forgets what is before a revision, for good, and only that. It never goes back, nor beyond the next revision.
func TestMachine_Compact(t *testing.T) {
	s := owned(t)
	s.want(fsmpb.Result_OK, compactOp(0))
	s.want(fsmpb.Result_OK, compactOp(1))
	s.want(fsmpb.Result_INVALID, compactOp(2))
	for i := range 5 {
		s.do(putOp("k", fmt.Sprint(i)))
	}
	for _, c := range []struct {
		to     Revision
		status fsmpb.Result_Status
		oldest Revision
	}{
		{0, fsmpb.Result_OK, 1}, {1, fsmpb.Result_OK, 1}, {2, fsmpb.Result_OK, 2}, {1, fsmpb.Result_OK, 2}, {4, fsmpb.Result_OK, 4}, {7, fsmpb.Result_INVALID, 4},
		{1 << 63, fsmpb.Result_INVALID, 4}, {^Revision(0), fsmpb.Result_INVALID, 4}, {5, fsmpb.Result_OK, 5}, {6, fsmpb.Result_OK, 6}, {6, fsmpb.Result_OK, 6},
	} {
		s.want(c.status, compactOp(c.to))
		again, err := Open(s.db, 7, 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.m.Oldest() != c.oldest || again.Oldest() != c.oldest || s.last.Events != nil || s.m.Revision() != 5 {
			t.Errorf("compact to %d: got oldest %d, opened again %d; want %d", c.to, s.m.Oldest(), again.Oldest(), c.oldest)
		}
		var compacted *CompactedError
		if _, err := s.m.Changes(ChangesQuery{From: c.oldest - 1}); !errors.Is(err, ErrCompacted) || !errors.As(err, &compacted) || compacted.Oldest != c.oldest {
			t.Errorf("changes from %d: got %v, want *CompactedError of %d", c.oldest-1, err, c.oldest)
		}
		page, err := s.m.Changes(ChangesQuery{From: c.oldest})
		if err != nil || len(page.Changes) != int(6-c.oldest) {
			t.Errorf("changes from %d: got %+v, %v; want all that are left", c.oldest, page, err)
		}
		if got := len(stored(t, s.db, s.m.home.sp, kindHistory, kindHistory)); got != int(6-c.oldest) {
			t.Errorf("stored: got %d changes, want %d", got, 6-c.oldest)
		}
	}
	s.do(putOp("k", "on"))
	if page, err := s.m.Changes(ChangesQuery{From: 6}); err != nil || len(page.Changes) != 1 || string(page.Changes[0].Prev.Value) != "4" {
		t.Errorf("changes from 6: got %+v, %v", page, err)
	}
}
