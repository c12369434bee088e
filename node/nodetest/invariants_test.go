package nodetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oarlock/oarlock/node"
)

// recorder is a testing.TB that keeps what is reported.
type recorder struct {
	testing.TB
	own bool // end runs the cleanups, not the test

	mu       sync.Mutex // guards the fields below
	errors   []string
	cleanups []func()
}

func (r *recorder) Cleanup(f func()) {
	if !r.own {
		r.TB.Cleanup(f)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// atEnd makes end call f last.
func (r *recorder) atEnd(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append([]func(){f}, r.cleanups...)
}

// end runs what Cleanup was given, the last first.
func (r *recorder) end() {
	r.mu.Lock()
	all := r.cleanups
	r.mu.Unlock()
	for _, f := range slices.Backward(all) {
		f()
	}
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) saw(t *testing.T, part string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.errors {
		if strings.Contains(e, part) {
			return
		}
	}
	t.Errorf("reported %q, want something with %q", r.errors, part)
}

func (r *recorder) quiet(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errors) > 0 {
		t.Errorf("reported %q, want nothing", r.errors)
	}
}

// planted is a checker without nodes, and what it reports.
func planted(t *testing.T) (*checker, *recorder) {
	r := &recorder{TB: t}
	c := &Cluster{t: r, o: Options{Shards: 1}}
	c.checks = newChecker(c)
	return c.checks, r
}

// fakeHold is a hold that says what it is told to.
type fakeHold struct {
	token node.Token
	err   error
}

func (h *fakeHold) Token() node.Token                         { return h.token }
func (h *fakeHold) Check() error                              { return h.err }
func (h *fakeHold) Done() <-chan struct{}                     { return nil }
func (h *fakeHold) Context(p context.Context) context.Context { return p }

// Two nodes that own a shard at one instant are reported; one after the other is not.
func TestChecker_Owners(t *testing.T) {
	k, r := planted(t)
	a, b := &fakeHold{token: 3}, &fakeHold{token: 4}
	a.err = node.ErrLost
	k.judgeOwners(1, []owned{{0, a}, {1, b}})
	r.quiet(t)
	a.err = nil
	k.judgeOwners(1, []owned{{0, a}, {1, b}})
	r.saw(t, "nodes 0 and 1 both own shard 1")
}

// An ownership with a smaller token than one seen before is reported.
func TestChecker_OwnersTokens(t *testing.T) {
	k, r := planted(t)
	k.judgeOwners(1, []owned{{0, &fakeHold{token: 4}}})
	r.quiet(t)
	k.judgeOwners(1, []owned{{1, &fakeHold{token: 3}}})
	r.saw(t, "after token 4")
}

// Tracked holds of one thing: two trusted ones, a token that does not rise and a lost one that is trusted again are reported.
func TestCluster_Track(t *testing.T) {
	k, r := planted(t)
	a, b := &fakeHold{token: 1}, &fakeHold{token: 2}
	k.c.Track("x", a)
	a.err = node.ErrLost
	k.c.Track("x", b)
	k.c.Track("y", &fakeHold{token: 1})
	r.quiet(t)
	a.err = nil
	k.checkTracks()
	r.saw(t, "token 1 is trusted again")
	k.c.Track("x", &fakeHold{token: 3})
	r.saw(t, "tokens 2 and 3 are both trusted")
	k.c.Track("x", &fakeHold{token: 3, err: node.ErrLost})
	r.saw(t, "granted with token 3 after token 3")
}

// Replicas that differ at the same index are found; at different indexes they may differ.
func TestChecker_States(t *testing.T) {
	if _, _, found := differ([]state{{0, 5, 1}, {1, 6, 2}, {2, 5, 1}}); found {
		t.Error("differ found a difference among equal replicas")
	}
	if a, b, found := differ([]state{{0, 5, 1}, {1, 6, 2}, {2, 5, 3}}); !found || a.i != 0 || b.i != 2 {
		t.Errorf("differ: got %v, %v, %v, want nodes 0 and 2", a, b, found)
	}
	if level([]state{{0, 5, 1}, {1, 6, 2}}) || !level([]state{{0, 5, 1}, {1, 5, 1}}) || !level(nil) {
		t.Error("level is wrong")
	}
}

// A resource refuses a smaller token after a larger one, and keeps its value.
func TestResource_Write(t *testing.T) {
	r := (&Cluster{}).Resource()
	if err := errors.Join(r.Write(1, "a"), r.Write(3, "b"), r.Write(3, "c")); err != nil {
		t.Fatalf("writes with rising tokens: %v", err)
	}
	if err := r.Write(2, "d"); !errors.Is(err, node.ErrFenced) {
		t.Errorf("write with token 2 after 3: got %v, want ErrFenced", err)
	}
	if a, n := r.Counts(); r.Value() != "c" || a != 3 || n != 1 {
		t.Errorf("got %q, %d, %d, want c, 3, 1", r.Value(), a, n)
	}
}

// ops makes a history out of inputs, one after the other; each with r.unknown or g.maybe has no end.
func ops(ins ...any) []porcupine.Operation {
	var all []porcupine.Operation
	for i, in := range ins {
		op := porcupine.Operation{ClientId: i, Input: in, Call: int64(2 * i), Return: int64(2*i + 1)}
		switch x := in.(type) {
		case record:
			if x.unknown {
				op.Return = endless
			}
		case grant:
			if x.maybe {
				op.Return = endless
			}
		}
		all = append(all, op)
	}
	return all
}

// The model of a key takes what a register with revisions may do, and nothing else: lost writes, stale reads, swaps that should
// have failed and wrong revisions are found, and an unknown write may be seen or not.
func TestHistory_RecordModel(t *testing.T) {
	put := func(v string, rev node.Revision) record { return record{kind: opPut, value: v, rev: rev} }
	maybe := func(v string) record { return record{kind: opPut, value: v, unknown: true} }
	get := func(v string, rev node.Revision) record { return record{kind: opGet, found: true, value: v, rev: rev} }
	swap := func(old node.Revision, v string, rev node.Revision) record {
		return record{kind: opSwap, old: old, value: v, rev: rev}
	}
	conflict := func(old node.Revision) record { return record{kind: opSwap, old: old, value: "z", conflict: true} }
	none, del := record{kind: opGet}, record{kind: opDelete}
	for _, tt := range []struct {
		name string
		ins  []any
		want bool
	}{
		{"Written", []any{none, put("a", 1), get("a", 1), put("b", 2), get("b", 2), del, none}, true},
		{"Lost", []any{put("a", 1), none}, false},
		{"Stale", []any{put("a", 1), put("b", 2), get("a", 1)}, false},
		{"WrongRevision", []any{put("a", 1), get("a", 2)}, false},
		{"UnknownSeen", []any{put("a", 1), maybe("b"), get("b", 2), get("b", 2)}, true},
		{"UnknownNotSeen", []any{put("a", 1), maybe("b"), get("a", 1), get("a", 1)}, true},
		{"UnknownSeenLate", []any{put("a", 1), maybe("b"), get("a", 1), get("b", 2)}, true},
		{"UnknownSeenAndGone", []any{put("a", 1), maybe("b"), get("b", 2), get("a", 1)}, false},
		{"Swapped", []any{put("a", 1), swap(1, "b", 2), get("b", 2)}, true},
		{"SwappedWrongly", []any{put("a", 1), put("b", 2), swap(1, "c", 3)}, false},
		{"Conflict", []any{put("a", 2), conflict(1), get("a", 2)}, true},
		{"ConflictWrongly", []any{put("a", 2), conflict(2)}, false},
		{"SwapOfUnknown", []any{maybe("a"), swap(7, "b", 8), get("b", 8)}, true},
		{"UnknownSwap", []any{put("a", 1), record{kind: opSwap, old: 1, value: "b", unknown: true}, get("a", 1), get("b", 2)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(recordModel(), ops(tt.ins...)); got != tt.want {
				t.Errorf("linearizable: got %v, want %v", got, tt.want)
			}
		})
	}
}

// The model of a lock refuses two holders and tokens that fall.
func TestHistory_LockModel(t *testing.T) {
	take := func(n node.Token) grant { return grant{token: n} }
	free := func(n node.Token) grant { return grant{token: n, end: true} }
	maybe := func(n node.Token) grant { return grant{token: n, end: true, maybe: true} }
	for _, tt := range []struct {
		name string
		ins  []any
		want bool
	}{
		{"OneAfterTheOther", []any{take(1), free(1), take(2), free(2)}, true},
		{"Two", []any{take(1), take(2)}, false},
		{"TokenFalls", []any{take(2), free(2), take(1)}, false},
		{"Lost", []any{take(1), maybe(1), take(2)}, true},
		{"OldUnlockFreesNone", []any{take(1), maybe(1), take(2), free(1), take(3)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(lockModel(), ops(tt.ins...)); got != tt.want {
				t.Errorf("linearizable: got %v, want %v", got, tt.want)
			}
		})
	}
}

// A history reports errors of no documented kind, calls that outlast their deadline, and at its end what is not linearizable.
func TestHistory_Reports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, r := planted(t)
		h := k.c.History()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := (&node.Node{}).ShardAt(1)
		h.call(ctx, "put", s, "k")(record{kind: opPut, value: "a"}, 1, nil)
		h.call(ctx, "put", s, "k")(record{kind: opPut, value: "b"}, 0, fmt.Errorf("put: %w", node.ErrNoQuorum))
		h.finish()
		r.quiet(t)
		h.call(ctx, "put", s, "k")(record{kind: opPut, value: "c"}, 0, errors.New("no kind"))
		r.saw(t, "no documented kind")
		h.call(ctx, "get", s, "k")(record{kind: opGet, found: true, value: "b"}, 2, nil)
		h.finish()
		r.saw(t, "not linearizable")
		end := h.call(ctx, "get", s, "k")
		time.Sleep(2 * time.Second)
		end(record{kind: opGet, found: true, value: "a"}, 1, nil)
		r.saw(t, "after its deadline")
	})
}
