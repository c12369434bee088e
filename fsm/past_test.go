package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// past is a shard with a random history, and a naive model of it: all records as they were after each revision, as copied when it
// was the last one.
type past struct {
	*generator
	states []map[string]Record // by revision
}

func newPast(t *testing.T, seed uint64, entries int) *past {
	t.Helper()
	p := &past{generator: &generator{shard: owned(t), r: rand.New(rand.NewPCG(seed, 9)), seqs: map[Token]uint64{}}}
	p.states = append(p.states, map[string]Record{})
	for range entries {
		p.step()
	}
	return p
}

// step applies one operation, which changes one revision at the most.
func (p *past) step() {
	p.t.Helper()
	id := p.anySession()
	p.seqs[id]++
	var op *fsmpb.Op
	switch p.r.IntN(12) {
	case 0:
		p.opened++
		op = openOp(fmt.Sprint("n", p.opened), 1, 5e9)
	case 1:
		op = endOp(id, p.anySession())
	default:
		op = by(id, p.seqs[id], 0, p.configOp(id, p.seqs[id]))
		if id == 12345 && !op.GetPut().GetEphemeral() {
			op.Session = 0
		}
		if op.GetCompact() != nil && p.r.IntN(3) > 0 {
			op = touchOp()
		}
	}
	p.do(op)
	if rev := p.m.Revision(); rev == Revision(len(p.states)) {
		p.states = append(p.states, nil)
	} else if rev != Revision(len(p.states)-1) {
		p.t.Fatalf("%v: revision %d after %d", op, rev, len(p.states)-1)
	}
	p.states[len(p.states)-1] = allRecords(p.t, p.m, p.m.home.sp)
}

// list is the answer of the model.
func (p *past) list(q ListQuery, at Revision) (want []Record, more bool) {
	for key, rec := range p.states[at] {
		if key >= string(q.From) && (len(q.To) == 0 || key < string(q.To)) {
			want = append(want, rec)
		}
	}
	slices.SortFunc(want, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	if q.Reverse {
		slices.Reverse(want)
	}
	size := 0
	for i := range want {
		if q.KeysOnly {
			want[i].Value = nil
		}
		if i > 0 && (q.Limit > 0 && i >= q.Limit || q.Bytes > 0 && size >= q.Bytes) {
			return want[:i], true
		}
		size += len(want[i].Key) + len(want[i].Value)
	}
	return want, false
}

// sameRecords compares records, but for ages: those of the past are not known.
func sameRecords(a, b []Record) bool { return slices.EqualFunc(a, b, same) }

func (p *past) query(at Revision) ListQuery {
	bound := func() []byte {
		return []byte(p.pick("", "", "k", "l", "l/", "l/1", "l/1\x00", "l0", "m", "m/1/", "z"))
	}
	return ListQuery{From: bound(), To: bound(), At: at, Limit: p.r.IntN(4), Bytes: p.r.IntN(3) * p.r.IntN(40), KeysOnly: p.r.IntN(3) == 0, Reverse: p.r.IntN(2) == 0}
}

// check compares everything that can be read of the past with the model.
func (p *past) check(m *Machine) {
	t := p.t
	now := Revision(len(p.states) - 1)
	for at := Revision(1); at <= now+2; at++ {
		want := error(nil)
		switch {
		case at > now:
			want = ErrFuture
		case at < m.Oldest()-1:
			want = ErrCompacted
		}
		for range 3 {
			q := p.query(at)
			page, err := m.List(q)
			if !errors.Is(err, want) {
				t.Fatalf("list at %d of %d, oldest %d: got %v, want %v", at, now, m.Oldest(), err, want)
			}
			if want != nil {
				continue
			}
			recs, more := p.list(q, at)
			if !sameRecords(recs, page.Records) || more != page.More || page.Revision != at {
				t.Fatalf("list %+v: more %v at %d, want %v (-want +got):\n%s", q, page.More, page.Revision, more, cmp.Diff(recs, page.Records))
			}
		}
		key := p.key()
		rec, err := m.GetAt([]byte(key), at)
		if want == nil {
			was, found := p.states[at][key]
			if found != (err == nil) || found && !same(was, rec) || !found && !errors.Is(err, ErrNotFound) {
				t.Fatalf("get %q at %d: got %+v, %v; want %+v, %v", key, at, rec, err, was, found)
			}
		} else if !errors.Is(err, want) {
			t.Fatalf("get at %d: got %v, want %v", at, err, want)
		}
	}
	p.checkChanges(m)
}

// diff is what a revision changed, by key, according to the model.
func (p *past) diff(rev Revision) (cs []Change) {
	before, after := p.states[rev-1], p.states[rev]
	for key, rec := range after {
		if old, found := before[key]; !found {
			cs = append(cs, Change{Revision: rev, Record: rec})
		} else if old.Mod != rec.Mod {
			cs = append(cs, Change{Revision: rev, Record: rec, Prev: &old})
		}
	}
	for key, old := range before {
		if _, found := after[key]; !found {
			cs = append(cs, Change{Revision: rev, Deleted: true, Record: Record{Key: []byte(key), Mod: rev}, Prev: &old})
		}
	}
	return cs
}

// sorted are changes as lines, in the order of revisions and, within one, of keys.
func sorted(cs []Change) []string {
	cs = slices.Clone(cs)
	for i := range cs {
		cs[i].At = 0
	}
	slices.SortStableFunc(cs, func(a, b Change) int {
		if a.Revision != b.Revision {
			return int(a.Revision) - int(b.Revision)
		}
		return bytes.Compare(a.Record.Key, b.Record.Key)
	})
	return lines(cs)
}

func (p *past) checkChanges(m *Machine) {
	t := p.t
	byKey := map[string][]Change{}
	var all []Change // from the oldest on
	for rev := m.Oldest(); rev < Revision(len(p.states)); rev++ {
		cs := p.diff(rev)
		all = append(all, cs...)
		for _, c := range cs {
			byKey[string(c.Record.Key)] = append(byKey[string(c.Record.Key)], c)
		}
	}
	for from := m.Oldest(); from <= m.Revision()+1; from++ {
		prefix, limit := p.pick("", "", "l", "l/", "m/1"), p.r.IntN(5)
		var got, want []Change
		for _, c := range all {
			if c.Revision >= from && strings.HasPrefix(string(c.Record.Key), prefix) {
				want = append(want, c)
			}
		}
		for next := from; next <= m.Revision(); {
			page, err := m.Changes(ChangesQuery{Prefix: []byte(prefix), From: next, Limit: limit})
			if err != nil || page.Next <= next {
				t.Fatalf("changes from %d: got %+v, %v", next, page, err)
			}
			got, next = append(got, page.Changes...), page.Next
		}
		if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Fatalf("changes of %q from %d (-want +got):\n%s", prefix, from, diff)
		}
	}
	for _, key := range []string{"k", "l", "l/1", "l/2", "m/1", "m/1/2", "x"} {
		cs, err := m.History([]byte(key), 0, 0)
		slices.Reverse(cs)
		if diff := cmp.Diff(sorted(byKey[key]), sorted(cs)); diff != "" || err != nil {
			t.Fatalf("history of %q: %v (-want +got):\n%s", key, err, diff)
		}
	}
}

// Records at any revision, changes from any revision and histories of keys are what a copy of all states says, after whatever
// operations, after a Compact, and on a replica that got the state by a snapshot.
func TestMachine_List_PastIsTheModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p := newPast(t, seed, 250)
			p.check(p.m)
			if p.m.Revision() < 80 {
				t.Errorf("only %d revisions: this tests nothing", p.m.Revision())
			}
			p.do(compactOp(p.m.Oldest() + (p.m.Revision()-p.m.Oldest())/2))
			p.check(p.m)
			r := newShard(t, Options{})
			if err := r.m.Restore(newSlowReader(stream(t, p.m)), nil); err != nil {
				t.Fatal(err)
			}
			p.check(r.m)
		})
	}
}

// All pages of a listing at one revision are the listing, whatever happens between them, in both directions.
func TestMachine_List_PagesOfOneRevision(t *testing.T) {
	for seed := range uint64(4) {
		p := newPast(t, 50+seed, 60)
		at := p.m.Revision()
		for _, reverse := range []bool{false, true} {
			want, _ := p.list(ListQuery{Reverse: reverse}, at)
			var got []Record
			for q := (ListQuery{At: at, Limit: 1 + int(seed%2), Reverse: reverse}); ; {
				page, err := p.m.List(q)
				if errors.Is(err, ErrCompacted) {
					got = want // the generator has compacted it away
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, page.Records...); !page.More {
					break
				}
				last := page.Records[len(page.Records)-1].Key
				if q.From = append(last, 0); reverse {
					q.From, q.To = nil, last
				}
				p.step()
				p.step()
			}
			if !sameRecords(want, got) {
				t.Errorf("seed %d, reverse %v (-want +got):\n%s", seed, reverse, cmp.Diff(want, got))
			}
		}
	}
}
