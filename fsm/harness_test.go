package fsm

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// quiet keeps pebble's chatter out of the tests' output, and makes its fatal errors the test's.
type quiet struct{ t testing.TB }

func (quiet) Infof(string, ...any)        {}
func (quiet) Errorf(string, ...any)       {}
func (q quiet) Fatalf(f string, a ...any) { q.t.Fatalf(f, a...) }

func openDB(t testing.TB, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{t}, MemTableSize: 1 << 20})
	if err != nil {
		t.Fatalf("open database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close database: %v", err)
		}
	})
	return db
}

// shard drives one machine as an owner would.
type shard struct {
	t     testing.TB
	db    *pebble.DB
	m     *Machine
	index uint64
	stamp Token
	last  Applied
}

func newShard(t testing.TB, o Options) *shard {
	t.Helper()
	db := openDB(t, vfs.NewMem())
	m, err := Open(db, 7, 3, o)
	if err != nil {
		t.Fatalf("open machine: %v", err)
	}
	return &shard{t: t, db: db, m: m}
}

// owned is a shard that node "a" owns, in term 1.
func owned(t testing.TB) *shard {
	t.Helper()
	s := newShard(t, Options{})
	s.claim("a", 1)
	return s
}

// entry applies one entry, whatever comes of it, and checks that memory and storage agree.
func (s *shard) entry(e *fsmpb.Entry) Applied {
	s.t.Helper()
	s.index++
	done, err := s.m.Apply([]Entry{{s.index, encode(s.t, e)}})
	if err != nil {
		s.t.Fatalf("apply entry %d: %v", s.index, err)
	}
	if len(done) != 1 || done[0].Index != s.index {
		s.t.Fatalf("apply entry %d: got %+v, want it alone", s.index, done)
	}
	checkMirror(s.t, s.m)
	s.last = done[0]
	return done[0]
}

// claim claims the shard, replacing whatever claim there is.
func (s *shard) claim(node string, term uint64) Applied {
	s.t.Helper()
	a := s.entry(claimEntry(&fsmpb.Claim{Node: node, Incarnation: 1, Term: term, Lease: int64(time.Second),
		Replaces: uint64(s.m.Claim().Token)}))
	if !a.Claim.Accepted {
		s.t.Fatalf("claim of %s in term %d: got refused for %+v", node, term, a.Claim.Current)
	}
	s.stamp = a.Claim.Current.Token
	return a
}

// do applies operations in one batch under the current stamp.
func (s *shard) do(ops ...*fsmpb.Op) []*fsmpb.Result {
	s.t.Helper()
	for _, op := range ops {
		for _, c := range append(op.GetCheckpoint().GetSessions(), op.GetRelease().GetSessions()...) {
			if x, ok := s.m.Session(Token(c.Id)); ok && c.Heard == 0 {
				c.Heard = uint64(x.Heard) // measured now
			}
		}
	}
	a := s.entry(batchEntry(s.stamp, ops...))
	if a.Err != nil {
		s.t.Fatalf("apply batch: %v", a.Err)
	}
	return a.Results
}

// want applies one operation and compares its status.
func (s *shard) want(st fsmpb.Result_Status, op *fsmpb.Op) *fsmpb.Result {
	s.t.Helper()
	res := s.do(op)[0]
	if res.Status != st {
		s.t.Fatalf("%v: got %v, want %v", prototext.Format(op), prototext.Format(res), st)
	}
	return res
}

// session opens a session of a node. The name of the node makes the nonce.
func (s *shard) session(node string) Token {
	s.t.Helper()
	return Token(s.want(fsmpb.Result_OK, openOp(node, 1, 10*time.Second)).Token)
}

// grants are the grants that the last entry made, as "session/seq token name".
func (s *shard) grants() []string {
	var g []string
	for _, e := range s.last.Events {
		if e.Kind == Granted {
			g = append(g, fmt.Sprintf("%d/%d %d %s", e.Session, e.Seq, e.Token, e.Name))
		}
	}
	return g
}

func encode(t testing.TB, e *fsmpb.Entry) []byte {
	t.Helper()
	b, err := proto.Marshal(e)
	if err != nil {
		t.Fatalf("marshal entry: %v", err)
	}
	return b
}

func claimEntry(c *fsmpb.Claim) *fsmpb.Entry {
	return &fsmpb.Entry{Version: 1, Attempt: 1, Body: &fsmpb.Entry_Claim{Claim: c}}
}

func batchEntry(stamp Token, ops ...*fsmpb.Op) *fsmpb.Entry {
	return &fsmpb.Entry{Version: 1, Attempt: 1, Body: &fsmpb.Entry_Batch{Batch: &fsmpb.Batch{Stamp: uint64(stamp), Ops: ops}}}
}

func openOp(node string, incarnation uint64, ttl time.Duration) *fsmpb.Op {
	nonce := make([]byte, NonceSize)
	copy(nonce, fmt.Sprintf("%s.%d", node, incarnation))
	return &fsmpb.Op{Kind: &fsmpb.Op_OpenSession{OpenSession: &fsmpb.OpenSession{Node: node, Incarnation: incarnation,
		Ttl: int64(ttl), Nonce: nonce}}}
}

func endOp(ids ...Token) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: numbers(ids), Expired: true}}}
}

func renewOp(ids ...Token) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Renew{Renew: &fsmpb.Renew{Ids: numbers(ids)}}}
}

func checkpointOp(id Token, silence time.Duration) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Checkpoint{Checkpoint: &fsmpb.Checkpoint{Sessions: []*fsmpb.Checkpoint_Silence{
		{Id: uint64(id), Silence: int64(silence)}}}}}
}

func releaseOp(id Token, silence time.Duration) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Release{Release: &fsmpb.Release{Sessions: []*fsmpb.Checkpoint_Silence{
		{Id: uint64(id), Silence: int64(silence)}}}}}
}

func raiseOp(version uint32) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Raise{Raise: &fsmpb.Raise{Version: version}}}
}

func touchOp() *fsmpb.Op { return &fsmpb.Op{Kind: &fsmpb.Op_Touch{Touch: &fsmpb.Touch{}}} }

func lockOp(id Token, seq uint64, name string) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Lock{Lock: &fsmpb.Lock{Name: []byte(name)}}}
}

func tryOp(id Token, seq uint64, name string) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Lock{Lock: &fsmpb.Lock{Name: []byte(name), Try: true}}}
}

func unlockOp(id Token, seq uint64, name string, token uint64) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_Unlock{Unlock: &fsmpb.Unlock{Name: []byte(name), Token: token}}}
}

func cancelOp(id Token, seq, of uint64) *fsmpb.Op {
	return &fsmpb.Op{Session: uint64(id), Seq: seq, Kind: &fsmpb.Op_CancelLock{CancelLock: &fsmpb.CancelLock{Seq: of}}}
}

func putOp(key, value string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Put{Put: &fsmpb.Put{Key: []byte(key), Value: []byte(value)}}}
}

func deleteOp(key string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_Delete{Delete: &fsmpb.Delete{Key: []byte(key)}}}
}

func casOp(key string, expect uint64, value string) *fsmpb.Op {
	return &fsmpb.Op{Kind: &fsmpb.Op_CompareAndSwap{CompareAndSwap: &fsmpb.CompareAndSwap{Key: []byte(key),
		Expect: expect, Value: []byte(value)}}}
}

// by makes an operation a session's.
func by(id Token, seq, low uint64, op *fsmpb.Op) *fsmpb.Op {
	op.Session, op.Seq, op.Low = uint64(id), seq, low
	return op
}

// guarded adds a guard to an operation.
func guarded(op *fsmpb.Op, kind fsmpb.Guard_Kind, name string, token Token) *fsmpb.Op {
	op.Guards = append(op.Guards, &fsmpb.Guard{Kind: kind, Name: []byte(name), Token: uint64(token)})
	return op
}

func numbers(ids []Token) []uint64 {
	n := make([]uint64, len(ids))
	for i, id := range ids {
		n[i] = uint64(id)
	}
	return n
}

// dump is a state in a comparable form, with all that it consists of.
type dump struct {
	Claim    Claim
	Counters [3]uint64
	Sessions []dumpedSession
	Locks    []LockState
	Refs     map[Token]int
}

type dumpedSession struct {
	Session Session
	Life    Life
	Nonce   string
	Results []string
	Refs    []string
}

func dumpState(st *state) dump {
	d := dump{Claim: st.claim, Counters: [3]uint64{uint64(st.counters.version), uint64(st.counters.tokens),
		uint64(st.counters.revision)}, Refs: map[Token]int{}}
	for _, s := range st.order {
		ds := dumpedSession{Session: s.view(st.claim), Life: s.life, Nonce: string(s.nonce[:])}
		for _, r := range s.results {
			ds.Results = append(ds.Results, fmt.Sprint(r.seq, " ", prototext.MarshalOptions{}.Format(r.result)))
		}
		for _, r := range s.refs {
			ds.Refs = append(ds.Refs, fmt.Sprint(r.seq, " ", r.lock.name))
		}
		d.Sessions = append(d.Sessions, ds)
		d.Refs[s.id] = len(s.refs)
	}
	d.Locks = (&Machine{st: st}).Locks(nil)
	return d
}

// checkMirror checks that what memory mirrors is what the storage has, and that the state is sound: every holder and
// waiter hangs on a living session that knows of it, and no name is held twice or waited for in vain.
func checkMirror(t testing.TB, m *Machine) {
	t.Helper()
	sp, err := m.home.enter()
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	defer m.home.leave()
	stored, applied, err := load(m.db, sp, m.options.MaxVersion)
	if err != nil {
		t.Fatalf("check: load: %v", err)
	}
	if applied != m.Applied() {
		t.Fatalf("check: stored applied index %d, in memory %d", applied, m.Applied())
	}
	d := dumpState(m.st)
	if diff := cmp.Diff(dumpState(stored), d); diff != "" {
		t.Fatalf("check: memory differs from storage (-stored +memory):\n%s", diff)
	}
	checkLocks(t, d)
}

func checkLocks(t testing.TB, d dump) {
	t.Helper()
	refs := map[Token]int{}
	for _, l := range d.Locks {
		if len(l.Holders) != 1 {
			t.Fatalf("check: lock %q has %d holders and %d waiters", l.Name, len(l.Holders), len(l.Waiters))
		}
		for _, c := range append(bytesFree(l.Holders), l.Waiters...) {
			refs[c.Session]++
			if _, live := d.Refs[c.Session]; !live {
				t.Fatalf("check: lock %q: session %d is dead", l.Name, c.Session)
			}
			if uint64(c.Token) > d.Counters[1] {
				t.Fatalf("check: lock %q: token %d was never minted", l.Name, c.Token)
			}
		}
	}
	for id, n := range d.Refs {
		if refs[id] != n {
			t.Fatalf("check: session %d knows of %d places, locks of %d", id, n, refs[id])
		}
	}
}

func bytesFree(cs []Claimant) []Claimant { return append([]Claimant(nil), cs...) }

// stream is the machine's snapshot.
func stream(t testing.TB, m *Machine) []byte {
	t.Helper()
	s, err := m.Prepare()
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	defer s.Close()
	var b bytes.Buffer
	if err := s.Save(&b, nil); err != nil {
		t.Fatalf("save: %v", err)
	}
	return b.Bytes()
}

func hash(t testing.TB, m *Machine) uint64 {
	t.Helper()
	h, err := m.Hash()
	if err != nil {
		t.Fatalf("hash: %v", err)
	}
	return h
}
