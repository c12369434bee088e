package fsm

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// filled is a machine on disk with n records of 64 bytes, of which some were changed once more.
func filled(b *testing.B, n, again int) *Machine {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: quiet{b}, MemTableSize: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	m, err := Open(db, 1, 1, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := &shard{t: b, db: db, m: m}
	s.claim("a", 1)
	for i := 0; i < n+again; {
		var ops []*fsmpb.Op
		for ; i < n+again && len(ops) < 1000; i++ {
			ops = append(ops, putOp(fmt.Sprintf("key/%06d", i*7%n), string(make([]byte, 64))))
		}
		s.raw(batchEntry(s.stamp, ops...))
	}
	return m
}

// BenchmarkMachine_List lists 10,000 records in pages of 1,000: as they are, and as they were before the last 1,000 changes.
func BenchmarkMachine_List(b *testing.B) {
	const n, later = 10_000, 1000
	m := filled(b, n, later)
	for name, at := range map[string]Revision{"now": 0, "before-1000-changes": n} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				got := 0
				for q := (ListQuery{At: at, Limit: 1000}); ; {
					page, err := m.List(q)
					if err != nil {
						b.Fatal(err)
					}
					if got += len(page.Records); !page.More {
						break
					}
					q.From = append(page.Records[len(page.Records)-1].Key, 0)
				}
				if got != n {
					b.Fatalf("got %d records, want %d", got, n)
				}
			}
		})
	}
}

// BenchmarkMachine_Changes catches up with 100,000 changes, in pages of 1,000.
func BenchmarkMachine_Changes(b *testing.B) {
	const n = 100_000
	m := filled(b, 10_000, n-10_000)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		got := 0
		for next := Revision(1); next <= n; {
			page, err := m.Changes(ChangesQuery{From: next, Limit: 1000})
			if err != nil {
				b.Fatal(err)
			}
			got, next = got+len(page.Changes), page.Next
		}
		if got != n {
			b.Fatalf("got %d changes, want %d", got, n)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}

// benchmark applies entries of n operations each, one entry a call.
func benchmark(b *testing.B, n int, op func(s *shard, id Token, seq uint64) *fsmpb.Op) {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: quiet{b}, MemTableSize: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	m, err := Open(db, 1, 1, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := &shard{t: b, db: db, m: m}
	s.claim("a", 1)
	id := s.session("n")
	es := make([]Entry, b.N)
	seq := uint64(0)
	for i := range es {
		ops := make([]*fsmpb.Op, n)
		for k := range ops {
			seq++
			ops[k] = op(s, id, seq)
		}
		es[i] = Entry{s.index + 1 + uint64(i), encode(b, batchEntry(s.stamp, ops...))}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range es {
		if _, err := m.Apply(es[i : i+1]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/command")
}

func BenchmarkMachine_Apply(b *testing.B) {
	put := func(s *shard, id Token, seq uint64) *fsmpb.Op {
		return by(id, seq, seq-min(seq, 64), putOp(fmt.Sprintf("key/%06d", seq%10000), string(make([]byte, 64))))
	}
	// Lock and unlock in turn: the token of a grant is that of the session and the grants before it.
	lock := func(s *shard, id Token, seq uint64) *fsmpb.Op {
		if seq%2 == 1 {
			return by(id, seq, seq-min(seq, 64), lockOp(id, seq, "x"))
		}
		return by(id, seq, seq-min(seq, 64), unlockOp(id, seq, "x", uint64(id)+seq/2))
	}
	txn := func(s *shard, id Token, seq uint64) *fsmpb.Op {
		op := txnOp(nil)
		for i := range uint64(10) {
			op.GetTxn().Then = append(op.GetTxn().Then, part(putOp(fmt.Sprintf("key/%06d", (seq*10+i)%10000), string(make([]byte, 64)))))
		}
		return by(id, seq, seq-min(seq, 64), op)
	}
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("txn-of-10/%d", n), func(b *testing.B) { benchmark(b, n, txn) })
		b.Run(fmt.Sprintf("put/%d", n), func(b *testing.B) { benchmark(b, n, put) })
		b.Run(fmt.Sprintf("lock/%d", n), func(b *testing.B) { benchmark(b, n, lock) })
	}
}
