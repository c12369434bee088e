package fsm

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// own is a lock of the session's own.
func own(id Token) *fsmpb.Op { return lockOp(id, 2, fmt.Sprint("lock/", id)) }

// crowded is one of the permits that half of the sessions get and the others wait for, with a grace.
func crowded(id Token) *fsmpb.Op {
	op := permitOp(id, 2, "crowded", 50_000)
	op.GetLock().Grace, op.GetLock().MaxHold = 1, 1
	return op
}

// crowd is a shard with n sessions of ten nodes, each of which has asked for something.
func crowd(t testing.TB, n int, ask func(Token) *fsmpb.Op) (*Machine, Token, []Token) {
	t.Helper()
	m, err := Open(openDB(t, vfs.NewMem()), 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{}
	apply := func(e *fsmpb.Entry) Applied {
		done, err := m.Apply([]Entry{{m.Applied() + 1, encode(t, e)}})
		if err != nil {
			t.Fatal(err)
		}
		return done[0]
	}
	s.stamp = apply(claimEntry(&fsmpb.Claim{Node: "owner", Incarnation: 1, Term: 1, Lease: 1})).Claim.Current.Token
	var ids []Token
	for len(ids) < n {
		var opens, locks []*fsmpb.Op
		for i := range min(1000, n-len(ids)) {
			op := openOp(fmt.Sprint(len(ids)+i), 1, 5*time.Second)
			op.GetOpenSession().Node = fmt.Sprintf("0c6a1e8e-6a5f-4c39-9d0e-%012d", i%10)
			opens = append(opens, op)
		}
		for _, res := range apply(batchEntry(s.stamp, opens...)).Results {
			ids = append(ids, Token(res.Token))
			locks = append(locks, by(Token(res.Token), 2, 1, ask(Token(res.Token))))
		}
		apply(batchEntry(s.stamp, locks...))
	}
	return m, s.stamp, ids
}

// Ending many sessions costs what these cost, not what all do, and leaves the lists in order.
func TestMachine_EndSessions_Many(t *testing.T) {
	m, stamp, ids := crowd(t, 3000, own)
	for _, some := range [][]Token{ids[1000:2000], ids[:10], ids[2500:], ids[10:1000]} {
		done, err := m.Apply([]Entry{{m.Applied() + 1, encode(t, batchEntry(stamp, endOp(some...)))}})
		if err != nil || done[0].Results[0].Status != fsmpb.Result_OK {
			t.Fatalf("end: got %+v, %v", done, err)
		}
		checkMirror(t, m)
	}
	n, members := 0, 0
	for s := range m.st.order.all {
		if s.id != ids[2000+n] {
			t.Fatalf("session %d: got %d, want %d", n, s.id, ids[2000+n])
		}
		n++
	}
	for _, x := range m.st.members {
		members += x.sessions.len()
	}
	if n != 500 || m.st.order.len() != 500 || members != 500 || len(m.st.locks) != 500 {
		t.Errorf("left: got %d sessions, %d counted, %d with nodes, %d locks; want 500", n, m.st.order.len(), members, len(m.st.locks))
	}
}

// Locks, elections, jobs and sessions that are over leave nothing, in memory or storage (case 154).
func TestCase154_IdleNamesLeaveNoState(t *testing.T) {
	s := owned(t)
	keys := func() (n int) {
		if err := eachRecord(s.db, s.m.home.sp, func([]byte, []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := keys()
	for i := range 60 {
		id := s.session(fmt.Sprint("n", i))
		name := fmt.Sprint("name", i)
		graced := lockOp(id, 6, "g"+name)
		graced.GetLock().Grace, graced.GetLock().MaxHold = 1, 1
		res := s.do(lockOp(id, 1, name), permitOp(id, 2, "s"+name, 2), allOp(id, 3, "a"+name, "b"+name),
			lockOf(fsmpb.Lock_ELECTION, id, 4, name), lockOf(fsmpb.Lock_JOB, id, 5, name), graced)
		s.do(unlockOp(0, 0, name, res[0].Token), permitsOp("s"+name, 3), unlockOp(0, 0, "s"+name, res[1].Token),
			unlockOp(0, 0, "b"+name, res[2].Token), doneOp(0, 0, name, res[4].Token, "r", time.Second, 0), forgetOp(name, 0))
		s.do(endOp(id), graceOp(fsmpb.Lock_LOCK, "g"+name, res[5].Token))
	}
	if got := keys(); got != before {
		t.Errorf("stored: got %d records, want the %d there were before", got, before)
	}
	st := s.m.st
	if n := len(st.sessions) + len(st.members) + len(st.nonces) + len(st.locks) + len(st.names.blocks) + len(st.jobs) + len(st.order.list) +
		len(st.timed.list) + len(st.closed.list) + len(st.kept.list); n != 0 {
		t.Errorf("in memory: got %d things, want none", n)
	}
}

// BenchmarkMachine_Sessions measures the memory that a session with one lock takes, which must be 1 KiB at the most, and the
// end of 10,000 of 100,000 sessions in one entry, which must be done in 100 ms.
func BenchmarkMachine_Sessions(b *testing.B) {
	const all, some = 100_000, 10_000
	for name, ask := range map[string]func(Token) *fsmpb.Op{"own": own, "crowded": crowded} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				m, stamp, ids := crowd(b, all, ask)
				e := Entry{m.Applied() + 1, encode(b, batchEntry(stamp, endOp(ids[:some]...)))}
				size := float64(stateBytes(b, m)) / all
				b.ReportMetric(size, "B/session")
				if size > 1024 {
					b.Errorf("%.0f bytes a session, want at most 1024", size)
				}
				b.StartTimer()
				begin := time.Now()
				if _, err := m.Apply([]Entry{e}); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(time.Since(begin).Microseconds())/1000, "ms/end-of-10000")
			}
		})
	}
}

// stateBytes is what the memory shrinks by when the machine forgets its state, which leaves it unusable but whole.
func stateBytes(b *testing.B, m *Machine) int64 {
	sp := m.home.sp
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	m.st = nil
	runtime.GC()
	runtime.ReadMemStats(&without)
	st, _, err := load(m.db, sp, Version)
	if err != nil {
		b.Fatal(err)
	}
	m.st = st
	return int64(with.HeapAlloc) - int64(without.HeapAlloc)
}

// A claim writes only what it changes: nothing of sessions that the log heard of under the last claim, and nothing if it waited for nobody. Else with very
// many it would outlast its own lease.
func TestMachine_Claim_WritesOnlyChanges(t *testing.T) {
	m, _, ids := crowd(t, 300, own)
	for term, c := range []struct {
		waited time.Duration
		writes int
	}{{time.Second, 0}, {0, 0}, {time.Second, len(ids)}} {
		x := m.begin(m.home.sp, nil, nil)
		x.out = &Applied{}
		q := &fsmpb.Claim{Node: "next", Incarnation: 1, Term: uint64(term) + 2, Lease: 1, Replaces: uint64(m.Claim().Token), Waited: int64(c.waited)}
		if err := x.claim(q); err != nil || !x.out.Claim.Accepted || len(x.dirty) != c.writes {
			t.Errorf("claim %d: %v, accepted %v, writes %d sessions, want %d", term, err, x.out.Claim.Accepted, len(x.dirty), c.writes)
		}
		if err := x.commit(); err != nil {
			t.Fatal(err)
		}
	}
}
