package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"
)

// stored are all keys and values of some kinds, as they are stored.
func stored(t testing.TB, r pebble.Reader, sp space, from, to byte) (lines []string) {
	t.Helper()
	if err := eachBetween(r, sp.start(nil, from), sp.start(nil, to+1), func(suffix, value []byte) error {
		lines = append(lines, fmt.Sprintf("%q %x", suffix, value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

// checkIndexes checks that the two indexes say what the records say, and that what a record goes with lives.
func checkIndexes(t testing.TB, m *Machine, sp space) {
	t.Helper()
	var want []string
	for _, rec := range allRecords(t, m, sp) {
		if rec.Session != 0 {
			if m.st.sessions[rec.Session] == nil {
				t.Fatalf("check: record %q goes with session %d, which is dead", rec.Key, rec.Session)
			}
			want = append(want, fmt.Sprintf("%q ", sp.ephemeral(nil, rec.Session, rec.Key)[spaceLen:]))
		}
		if rec.TTL != 0 {
			want = append(want, fmt.Sprintf("%q %x", sp.timed(nil, rec.Key)[spaceLen:], appendTimed(nil, &rec)))
		}
		if rec.Session != 0 && rec.TTL != 0 || rec.Age > rec.TTL || rec.Create > rec.Mod || rec.Version < 1 {
			t.Fatalf("check: record %+v", rec)
		}
	}
	slices.Sort(want)
	got := stored(t, m.db, sp, kindEphemeral, kindTimed)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("check: indexes (-of the records +stored):\n%s", cmp.Diff(want, got))
	}
}

// allRecords reads all records by the shortest way.
func allRecords(t testing.TB, m *Machine, sp space) map[string]Record {
	t.Helper()
	recs := map[string]Record{}
	if err := eachBetween(m.db, sp.start(nil, kindRecord), sp.start(nil, kindRecord+1), func(suffix, value []byte) error {
		rec, err := decodeRecord(suffix[1:], value)
		recs[string(rec.Key)] = rec
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return recs
}

// checkHistory undoes the history from its end to its begin: each change must have led to what was there, from what it says was
// there before, and no revision is missing.
func checkHistory(t testing.TB, m *Machine) {
	t.Helper()
	sp := m.home.sp
	recs := allRecords(t, m, sp)
	var changes []Change
	last, number := m.st.counters.oldest-1, uint32(0)
	if err := eachBetween(m.db, sp.start(nil, kindHistory), sp.start(nil, kindHistory+1), func(suffix, value []byte) error {
		rev, n, err := parseChange(suffix[1:])
		if err != nil {
			return err
		}
		if (rev != last+1 || n != 0) && (rev != last || n != number+1) {
			t.Fatalf("check: change %d.%d after %d.%d", rev, n, last, number)
		}
		last, number = rev, n
		c, err := decodeChange(rev, value)
		changes = append(changes, c)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if last != m.st.counters.revision {
		t.Fatalf("check: history ends at %d, the shard is at %d", last, m.st.counters.revision)
	}
	for _, c := range slices.Backward(changes) {
		key := string(c.Record.Key)
		rec, found := recs[key]
		if found == c.Deleted || found && !same(rec, c.Record) {
			t.Fatalf("check: change %d left %+v, there is %v, %+v", c.Revision, c, found, rec)
		}
		delete(recs, key)
		if c.Prev != nil {
			recs[key] = *c.Prev
		}
	}
}

// same compares records, but for their ages, which the history does not keep.
func same(a, b Record) bool {
	return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Create == b.Create && a.Mod == b.Mod &&
		a.Version == b.Version && a.Session == b.Session && a.TTL == b.TTL
}
