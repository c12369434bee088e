package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// generator makes a random log that hits what exists, by looking at the machine that it drives.
type generator struct {
	*shard
	r      *rand.Rand
	term   uint64
	opened uint64
	seqs   map[Token]uint64
	old    []*fsmpb.Op // operations to send again
}

// generate returns n entries and what the reference machine made of each.
func generate(t testing.TB, seed uint64, n int) (*shard, []Entry, []Applied) {
	t.Helper()
	g := &generator{shard: newShard(t, Options{}), r: rand.New(rand.NewPCG(seed, 1)), seqs: map[Token]uint64{}}
	var es []Entry
	var want []Applied
	for range n {
		g.index += g.r.Uint64N(3) // Raft's own entries leave gaps
		e := g.next()
		want = append(want, g.entry(e))
		es = append(es, Entry{g.index, encode(t, e)})
	}
	return g.shard, es, want
}

func (g *generator) next() *fsmpb.Entry {
	c := g.m.Claim()
	if (c.Token == 0 || c.Released) && g.r.IntN(3) > 0 {
		g.term++
		return claimEntry(&fsmpb.Claim{Node: g.pick("a", "b"), Incarnation: 1, Term: g.term, Lease: 1, Replaces: uint64(c.Token),
			Waited: g.r.Int64N(5e9)})
	}
	switch g.r.IntN(30) {
	case 0:
		g.term++
		fallthrough
	case 1, 2:
		return claimEntry(&fsmpb.Claim{Node: g.pick("a", "b"), Incarnation: 1, Term: g.term, Lease: 1, Replaces: uint64(c.Token),
			Keep: g.r.IntN(2) == 0, Waited: g.r.Int64N(5e9)})
	case 3:
		return batchEntry(c.Token-1, putOp("k", "stale"))
	case 4:
		return &fsmpb.Entry{Version: 1}
	}
	var ops []*fsmpb.Op
	for range 1 + g.r.IntN(6) {
		ops = append(ops, g.op())
	}
	e := batchEntry(c.Token, ops...)
	e.GetBatch().At = g.r.Int64N(9)
	return e
}

func (g *generator) op() *fsmpb.Op {
	id := g.anySession()
	switch g.r.IntN(20) {
	case 0, 1:
		g.opened++
		return openOp(fmt.Sprint("n", g.opened-g.r.Uint64N(2)), 1+g.r.Uint64N(2), 5e9)
	case 2:
		return endOp(id, g.anySession())
	case 3:
		return renewOp(id, g.anySession())
	case 4:
		return checkpointOp(id, 1+5e9)
	case 5:
		if g.r.IntN(5) == 0 {
			return releaseOp(id, 1e9)
		}
		return &fsmpb.Op{Kind: &fsmpb.Op_EndFormer{EndFormer: &fsmpb.EndFormer{Node: fmt.Sprint("n", g.r.Uint64N(g.opened+1)), Incarnation: 2}}}
	case 6:
		if len(g.old) > 0 {
			return g.old[g.r.IntN(len(g.old))]
		}
	}
	g.seqs[id]++
	seq := g.seqs[id]
	low := uint64(0)
	if g.r.IntN(3) == 0 {
		low = g.r.Uint64N(seq)
	}
	op := by(id, seq, low, g.sessionOp(id, seq))
	if g.r.IntN(4) == 0 {
		op = guarded(op, fsmpb.Guard_SESSION, "", g.anySession())
	}
	g.old = append(g.old, op)
	return op
}

func (g *generator) sessionOp(id Token, seq uint64) *fsmpb.Op {
	switch g.r.IntN(4) {
	case 0, 1:
		return g.holdOp(id, seq)
	case 2:
		return g.configOp(id, seq)
	}
	name := g.pick("x", "y", "z")
	switch g.r.IntN(8) {
	case 0:
		return tryOp(id, seq, name)
	case 1, 2:
		return lockOp(id, seq, name)
	case 3, 4:
		l, _ := g.m.Lock(fsmpb.Lock_LOCK, []byte(name))
		var tok uint64
		if len(l.Holders) > 0 {
			tok = uint64(l.Holders[0].Token) - g.r.Uint64N(5)/4
		}
		return unlockOp(id, seq, name, tok)
	case 5:
		return cancelOp(id, seq, seq-min(seq, g.r.Uint64N(4))+g.r.Uint64N(3)/2)
	case 6:
		return putOp(g.pick("k", "l"), g.pick("1", "2"))
	}
	if g.r.IntN(3) == 0 {
		return deleteOp(g.pick("k", "l"))
	}
	return casOp(g.pick("k", "l"), uint64(g.m.Revision())-min(uint64(g.m.Revision()), g.r.Uint64N(3)), g.pick("3", "4"))
}

func (g *generator) anySession() Token {
	if n := g.m.st.order.len(); n > 0 {
		return g.sessions()[g.r.IntN(n)].id
	}
	return 12345
}

func (g *generator) sessions() []*session { return slices.Collect(g.m.st.order.all) }

func (g *generator) pick(a ...string) string { return a[g.r.IntN(len(a))] }

// outcome is an Applied as text, to compare.
func outcome(a Applied) string {
	s := fmt.Sprintf("%d %d err %v claim %+v events %q", a.Index, a.Attempt, a.Err, a.Claim, fmt.Sprint(a.Events))
	if a.Claim != nil {
		s += fmt.Sprintf("%+v", *a.Claim)
	}
	for _, r := range a.Results {
		s += " [" + prototext.MarshalOptions{}.Format(&fsmpb.Result{Status: r.Status, Token: r.Token, Revision: r.Revision,
			Record: r.Record, Trimmed: r.Trimmed, Exists: r.Exists, Reason: r.Reason, Number: r.Number, More: r.More, Deleted: r.Deleted,
			Succeeded: r.Succeeded, Answers: r.Answers}) + "]"
	}
	return s
}

// replica replays a log through crashes, restarts and snapshots.
type replica struct {
	t      *testing.T
	r      *rand.Rand
	fs     *vfs.MemFS
	db     *pebble.DB
	m      *Machine
	id     uint64
	synced uint64
}

func (p *replica) open(fs *vfs.MemFS) {
	p.fs = fs
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{p.t}, MemTableSize: 1 << 20})
	if err != nil {
		p.t.Fatalf("open database: %v", err)
	}
	p.db = db
	if p.m, err = Open(db, 7, p.id, Options{}); err != nil {
		p.t.Fatalf("open machine: %v", err)
	}
	checkMirror(p.t, p.m)
	if p.m.Applied() < p.synced {
		p.t.Fatalf("applied %d after the crash, want at least the synced %d", p.m.Applied(), p.synced)
	}
}

func (p *replica) close() {
	if err := p.m.Close(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.db.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// crash loses what was not synced, or a random part of it.
func (p *replica) crash() {
	clone := p.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[p.r.IntN(3)],
		RNG: p.r})
	p.close()
	p.open(clone)
}

func (p *replica) restart() {
	p.close()
	p.synced = p.m.Applied()
	p.open(p.fs)
}

// moved is the state on another replica, by a snapshot.
func (p *replica) moved() {
	b := stream(p.t, p.m)
	p.id++
	next, err := Open(p.db, 7, p.id, Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := next.Restore(newSlowReader(b), nil); err != nil {
		p.t.Fatalf("restore: %v", err)
	}
	p.m.Close()
	p.m, p.synced = next, next.Applied()
	checkMirror(p.t, p.m)
}

func (p *replica) step() {
	switch p.r.IntN(24) {
	case 0:
		p.crash()
	case 1:
		p.restart()
	case 2:
		p.moved()
	case 3, 4:
		if err := p.m.Sync(); err != nil {
			p.t.Fatal(err)
		}
		p.synced = p.m.Applied()
	}
}

// follow applies a log in calls of random lengths, some entries more than once, with whatever step does in between, and holds the results and the
// state against those of the reference.
func (p *replica) follow(ref *shard, es []Entry, want []Applied) {
	t := p.t
	for p.m.Applied() < es[len(es)-1].Index {
		p.step()
		i := 0
		for es[i].Index <= p.m.Applied() {
			i++
		}
		from := max(0, i-p.r.IntN(3)) // some once more
		to := min(len(es), i+1+p.r.IntN(8))
		done, err := p.m.Apply(es[from:to])
		checkHistory(t, p.m)
		if err != nil || len(done) != to-i {
			t.Errorf("apply %d..%d: got %d, %v; want %d", from, to, len(done), err, to-i)
			return
		}
		for k, a := range done {
			if got, want := outcome(a), outcome(want[i+k]); got != want {
				t.Errorf("entry %d:\ngot  %s\nwant %s", a.Index, got, want)
				return
			}
		}
	}
	checkMirror(t, p.m)
	if got, want := hash(t, p.m), hash(t, ref.m); got != want {
		t.Errorf("hash: got %x, want %x", got, want)
	}
}

// The same log gives the same state and the same results, however it is cut into calls, through crashes that lose
// what was not synced, restarts, snapshots and entries that come twice (cases 9 and 12's kind).
func TestMachine_Replay(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ref, es, want := generate(t, seed, 300)
			p := &replica{t: t, r: rand.New(rand.NewPCG(seed, 2)), id: 1}
			p.open(vfs.NewCrashableMem())
			defer func() { p.close() }()
			p.follow(ref, es, want)
		})
	}
}

// waitKey names an operation.
type waitKey struct {
	session Token
	seq     uint64
}

// Tokens strictly rise, over claims, sessions and grants, and no election or job is ever granted twice at once (invariant 1).
func TestMachine_Apply_TokensRise(t *testing.T) {
	for seed := range uint64(4) {
		_, _, want := generate(t, 100+seed, 250)
		var last Token
		held, places, several := map[string]Token{}, map[string]int{}, waitKey{}
		grants := 0
		for _, a := range want {
			for _, e := range a.Events {
				fresh := e.Token
				switch e.Kind {
				case SessionOpened:
					fresh = e.Session
				case Granted:
					grants++
					name := fmt.Sprintf("%v/%s", e.Of, e.Name)
					if e.Of != fsmpb.Lock_LOCK && held[name] != 0 {
						t.Errorf("entry %d: %q granted while held under %d", a.Index, name, held[name])
					}
					held[name] = e.Token
					places[fmt.Sprintf("%s %d", name, e.Token)]++
					if grant := (waitKey{e.Session, e.Seq}); grant == several {
						continue // of several names, under one token
					} else {
						several = grant
					}
				case Freed:
					name := fmt.Sprintf("%v/%s", e.Of, e.Name)
					if e.Of != fsmpb.Lock_LOCK && held[name] != e.Token {
						t.Errorf("entry %d: %q freed under %d, held under %d", a.Index, name, e.Token, held[name])
					}
					if places[fmt.Sprintf("%s %d", name, e.Token)]--; places[fmt.Sprintf("%s %d", name, e.Token)] != 0 {
						t.Errorf("entry %d: %q freed under %d, which does not hold it", a.Index, name, e.Token)
					}
					delete(held, name)
					continue
				case Claimed: // the same token if it is kept
					if fresh == a.Claim.Current.Token && fresh <= last {
						continue
					}
				default:
					continue
				}
				if fresh <= last {
					t.Errorf("entry %d: token %d after %d", a.Index, fresh, last)
				}
				last = fresh
			}
		}
		if grants < 20 {
			t.Errorf("seed %d: only %d grants: the log tests nothing", seed, grants)
		}
	}
}
