package fsm

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

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
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("put/%d", n), func(b *testing.B) { benchmark(b, n, put) })
		b.Run(fmt.Sprintf("lock/%d", n), func(b *testing.B) { benchmark(b, n, lock) })
	}
}
