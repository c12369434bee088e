package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	gocmp "github.com/google/go-cmp/cmp"
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
	checkHistory(s.t, s.m)
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

// dump is a state in a comparable form, with all that it consists of.
type dump struct {
	Claim    Claim
	Counters [4]uint64
	Sessions []dumpedSession
	Locks    []LockState
	Refs     map[Token]int
	Timed    []Hold
	Graces   []Grace
	Jobs     []Job
	Kept     []KeptJob
	Passed   time.Duration
}

type dumpedSession struct {
	Session Session
	Life    Life
	Records int // that go with it
	Nonce   string
	Results []string
	Refs    []string
}

func dumpState(st *state) dump {
	d := dump{Claim: st.claim, Counters: [4]uint64{uint64(st.counters.version), uint64(st.counters.tokens),
		uint64(st.counters.revision), uint64(st.counters.oldest)}, Refs: map[Token]int{}}
	for s := range st.order.all {
		ds := dumpedSession{Session: s.view(st.claim), Life: s.life, Records: s.ephemeral, Nonce: string(s.nonce[:])}
		for _, r := range s.results {
			ds.Results = append(ds.Results, fmt.Sprint(r.seq, " ", prototext.MarshalOptions{}.Format(r.result)))
		}
		d.Refs[s.id] = 0
		for _, c := range s.refs {
			ds.Refs = append(ds.Refs, fmt.Sprint(c.seq, " ", c.locks[0].key))
			d.Refs[s.id] += len(c.locks)
		}
		d.Sessions = append(d.Sessions, ds)
	}
	m := &Machine{st: st}
	for kind := fsmpb.Lock_LOCK; kind <= fsmpb.Lock_JOB; kind++ {
		d.Locks = append(d.Locks, m.Locks(kind, "", "", 0)...)
	}
	d.Timed, d.Graces = m.TimedHolds(), m.Graces()
	slices.SortFunc(d.Graces, func(a, b Grace) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
	})
	for _, j := range st.jobs {
		d.Jobs = append(d.Jobs, j.view(nil))
	}
	slices.SortFunc(d.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	d.Kept, d.Passed = m.KeptJobs(), st.passed
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
	if diff := gocmp.Diff(dumpState(stored), d); diff != "" {
		t.Fatalf("check: memory differs from storage (-stored +memory):\n%s", diff)
	}
	checkLocks(t, d)
	checkIndexes(t, m, sp)
}

// checkLocks says again, in other words than the engine, what has to be true of locks at all times.
func checkLocks(t testing.TB, d dump) {
	t.Helper()
	refs, locks := map[Token]int{}, map[string]LockState{}
	for _, l := range d.Locks {
		locks[fmt.Sprint(l.Kind, l.Name)] = l
		if len(l.Holders)+len(l.Waiters)+len(l.Graces) == 0 {
			t.Fatalf("check: lock %q exists for nobody", l.Name)
		}
		modes := map[fsmpb.Lock_Mode]int{}
		for _, c := range l.Holders {
			modes[c.Mode]++
		}
		if n := modes[fsmpb.Lock_EXCLUSIVE]; n > 1 || len(modes) > 1 {
			t.Fatalf("check: lock %q is held by %v", l.Name, modes)
		}
		for _, c := range slices.Concat(l.Holders, l.Waiters) {
			refs[c.Session]++
			if _, live := d.Refs[c.Session]; !live {
				t.Fatalf("check: lock %q: session %d is dead", l.Name, c.Session)
			}
			if uint64(max(c.Token, c.Ticket)) > d.Counters[1] {
				t.Fatalf("check: lock %q: token %d or ticket %d was never minted", l.Name, c.Token, c.Ticket)
			}
		}
	}
	for id, n := range d.Refs {
		if refs[id] != n {
			t.Fatalf("check: session %d knows of %d places, locks of %d", id, n, refs[id])
		}
	}
	for _, l := range d.Locks {
		if len(l.Waiters) > 0 && !blocked(locks, l, l.Waiters[0]) {
			t.Fatalf("check: lock %q could be granted to its first waiter: %+v", l.Name, l)
		}
	}
}

// blocked reports whether there is a reason why the first waiter of a lock cannot be granted.
func blocked(locks map[string]LockState, l LockState, w Claimant) bool {
	names := w.Names
	if names == nil {
		names = []string{l.Name}
	}
	for _, name := range names {
		l := locks[fmt.Sprint(l.Kind, name)]
		switch {
		case l.Waiters[0].Ticket != w.Ticket, len(l.Graces) > 0:
			return true
		case w.Mode == fsmpb.Lock_PERMIT && len(l.Holders) >= int(l.Permits):
			return true
		case w.Mode == fsmpb.Lock_EXCLUSIVE && len(l.Holders) > 0:
			return true
		case w.Mode == fsmpb.Lock_SHARED && len(l.Holders) > 0 && l.Holders[0].Mode != fsmpb.Lock_SHARED:
			return true
		}
	}
	return false
}

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
