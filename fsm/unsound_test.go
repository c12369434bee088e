package fsm

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// pair is a record of a snapshot.
type pair struct{ suffix, value []byte }

// pairs are the records of a machine's snapshot.
func pairs(t testing.TB, m *Machine) (all []pair) {
	t.Helper()
	d, err := newDecoder(bytes.NewReader(stream(t, m)), Version)
	for err == nil {
		var suffix, value []byte
		if suffix, value, err = d.record(); err == nil {
			all = append(all, pair{bytes.Clone(suffix), bytes.Clone(value)})
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return all
}

// A snapshot whose records, sessions and history do not belong together is refused, and leaves the state as it was; put together
// again as it was, it is taken.
func TestMachine_Restore_UnsoundConfig(t *testing.T) {
	s, id := stocked(t)
	s.do(prefixOp("p/"))
	sp := s.m.home.sp
	key := func(b []byte) string { return string(b[spaceLen:]) }
	change := func(rev Revision, n uint32) string { return key(sp.change(nil, rev, n)) }
	record := func(k string) string { return key(sp.record(nil, []byte(k))) }
	counted := func(c counters) func([]byte) []byte { return func([]byte) []byte { return appendCounters(nil, c) } }
	c := s.m.st.counters
	c.oldest = 2
	late, early := c, c
	late.revision, early.revision = c.revision+1, c.revision-1
	remade := func(rec Record) func([]byte) []byte { return func([]byte) []byte { return appendRecord(nil, &rec) } }
	gone := func([]byte) []byte { return nil }
	old := Record{Create: 1, Mod: 1, Version: 1}
	changed := func(old, rec *Record) func([]byte) []byte {
		return func([]byte) []byte { return appendChange(nil, []byte("n"), 0, old, rec) }
	}
	noHistory := map[string]func([]byte) []byte{}
	for rev := Revision(1); rev <= 6; rev++ {
		noHistory[change(rev, 0)] = gone
	}
	for i := range uint32(3) {
		noHistory[change(7, i)] = gone
	}
	for name, edits := range map[string]map[string]func([]byte) []byte{
		"FirstChangeMissing":  {change(1, 0): gone},
		"ChangeMissing":       {change(4, 0): gone},
		"LastChangeMissing":   {change(7, 0): gone, change(7, 1): gone, change(7, 2): gone},
		"PartOfOneMissing":    {change(7, 1): gone},
		"FirstPartMissing":    {change(7, 0): gone},
		"AllMissing":          noHistory,
		"BeforeTheOldest":     {key(sp.start(nil, kindCounters)): counted(c)},
		"BeyondTheRevision":   {key(sp.start(nil, kindCounters)): counted(early)},
		"ShortOfTheRevision":  {key(sp.start(nil, kindCounters)): counted(late)},
		"SessionMissing":      {key(sp.number(nil, kindSession, uint64(id))): gone, key(sp.pair(nil, kindResult, uint64(id), 1)): gone},
		"SessionOfTheDead":    {record("n"): remade(Record{Create: 2, Mod: 2, Version: 1, Session: 99})},
		"RecordOfTheFuture":   {record("n"): remade(Record{Create: 2, Mod: 8, Version: 1})},
		"RecordBeforeItsMake": {record("n"): remade(Record{Create: 3, Mod: 2, Version: 1})},
		"RecordOfNoRevision":  {record("n"): remade(Record{Version: 1})},
		"TTLOver":             {record("n"): remade(Record{Create: 2, Mod: 2, Version: 1, TTL: MaxRecordTTL + 1})},
		"AgeOver":             {record("n"): remade(Record{Create: 2, Mod: 2, Version: 1, TTL: 5, Age: 6})},
		"TTLAndSession":       {record("n"): remade(Record{Create: 2, Mod: 2, Version: 1, TTL: 5, Session: id})},
		"ChangeOfNothing":     {change(2, 0): changed(nil, nil)},
		"ChangeOfItself":      {change(2, 0): changed(&Record{Create: 1, Mod: 2, Version: 2}, &old)},
		"ChangeBeforeItsMake": {change(3, 0): changed(&Record{Create: 2, Mod: 1, Version: 1}, &old)},
		"ChangeWithBoth":      {change(2, 0): changed(nil, &Record{TTL: 1, Session: id})},
		"ChangeOfNoVersion":   {change(3, 0): changed(&Record{Create: 1, Mod: 1}, &old)},
		"ChangeCut":           {change(2, 0): func(b []byte) []byte { return b[:len(b)-1] }},
		"KeyCut":              {change(2, 0)[:12]: func([]byte) []byte { return []byte{layout} }},
		"Index":               {key(sp.timed(nil, []byte("n"))): func([]byte) []byte { return appendTimed(nil, &Record{Mod: 2, TTL: 5}) }},
		"Good":                {},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			e, err := newEncoder(&b, 1, 5)
			if err != nil {
				t.Fatal(err)
			}
			all := pairs(t, s.m)
			for k := range edits {
				all = insert(all, k)
			}
			for _, p := range all {
				value := p.value
				if edit := edits[string(p.suffix)]; edit != nil {
					value = edit(value)
				}
				if value == nil {
					continue
				}
				if err := e.record(p.suffix, value); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.finish(); err != nil {
				t.Fatal(err)
			}
			r := owned(t)
			r.do(putOp("old", "state"))
			before := hash(t, r.m)
			err = r.m.Restore(&b, nil)
			if name == "Good" {
				if err != nil || hash(t, r.m) != hash(t, s.m) {
					t.Errorf("got %v, want it restored", err)
				}
			} else if !errors.Is(err, ErrCorrupt) || hash(t, r.m) != before {
				t.Errorf("got %v, changed %v; want ErrCorrupt and the state as it was", err, hash(t, r.m) != before)
			}
			checkMirror(t, r.m)
			checkHistory(t, r.m)
		})
	}
}

// insert adds a key in its place, if it is not there.
func insert(all []pair, key string) []pair {
	for i, p := range all {
		switch bytes.Compare([]byte(key), p.suffix) {
		case 0:
			return all
		case -1:
			return append(all[:i:i], append([]pair{{suffix: []byte(key)}}, all[i:]...)...)
		}
	}
	return append(all, pair{suffix: []byte(key)})
}
