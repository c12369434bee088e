package owner

import (
	"os"
	"testing"
)

// fixed are the bounds that scenarios and mutants start from.
func fixed() bounds {
	return bounds{lease: [members]int32{200, 200, 200}, ttl: 300, terms: 4, length: 10, writes: 1, releases: 1, drifts: 9, forwards: 1, messages: 2}
}

// nightly says that the long searches are asked for.
func nightly() bool { return os.Getenv("OARLOCK_NIGHTLY") != "" }

// A scenario is what may go wrong in a search.
type scenario struct {
	name   string
	bounds func(*bounds)
}

func scenarios() []scenario {
	return []scenario{
		{"Owner", func(b *bounds) { b.writes, b.releases, b.restarts, b.forwards = 2, 2, 1, 2 }},
		{"OwnerOfUnevenLeases", func(b *bounds) { b.lease = [members]int32{400, 200, 300} }},
		{"Session", func(b *bounds) { b.sessions, b.writes = true, 0 }},
		{"SessionInOneTerm", one},
		{"SessionOpened", func(b *bounds) { unopened(b); b.terms, b.releases = 3, 1 }},
		{"LongSession", func(b *bounds) { b.sessions, b.writes, b.ttl, b.restarts, b.forwards = true, 0, 600, 1, 2 }},
		{"SilentSession", func(b *bounds) { silent(b, 800, 600); b.releases, b.forwards, b.terms = 1, 2, 3 }},
		{"SilentSessionOfLongLeases", func(b *bounds) { silent(b, 1200, 600); patient(b); b.releases, b.terms = 1, 3 }},
		{"Succeeded", func(b *bounds) { sessions(b); b.ttl, b.script, b.terms = 500, succeeded(), 3 }},
		{"SlowOwner", slowOwner},
		{"SlowHolder", slowHolder},
		{"Overtaken", func(b *bounds) { silent(b, 800, 700); patient(b); b.script, b.releases = overtaken(), 1 }},
	}
}

// The guarantees hold whatever may go wrong: at most one owner (1), stamps (2), rising tokens (3), no hold outlived (4), reads of what
// was seen (5); in random walks, from fixed seeds.
func TestModel_Walks(t *testing.T) {
	count := 10_000
	switch {
	case nightly():
		count = 20_000_000
	case underRace:
		count = 500
	}
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			m := &model{bounds: fixed(), rules: shipped()}
			sc.bounds(&m.bounds)
			r := m.walks(7, count, 70)
			if r.breach != "" {
				t.Error(m.report(r))
			}
			t.Logf("%d steps", r.steps)
		})
	}
}

// The guarantees hold in every state that can be reached in one term, where the owner lapses and claims again and again; every night,
// also across an election.
func TestModel_EveryState(t *testing.T) {
	for _, x := range []struct {
		name    string
		terms   uint8
		length  uint8
		nightly bool
	}{
		{"OneTerm", 1, 5, false},
		{"TwoTerms", 2, 4, true},
	} {
		if x.nightly && !nightly() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			m := &model{bounds: fixed(), rules: shipped()}
			two(&m.bounds)
			m.terms, m.length, m.forwards, m.eager = x.terms, x.length, 0, true
			r := m.all(100_000_000, nil)
			if r.breach != "" {
				t.Error(m.report(r))
			}
			if !r.whole {
				t.Errorf("gave up after %d states", r.states)
			}
			t.Logf("%d states, %d steps", r.states, r.steps)
		})
	}
}

// Each rule is needed: without it a guarantee breaks, in a walk that is found again each time. With the rules as they are, the same walks
// break nothing.
func TestModel_Mutants(t *testing.T) {
	for _, x := range mutants() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			m := &model{bounds: fixed(), rules: shipped()}
			if x.bounds != nil {
				x.bounds(&m.bounds)
			}
			x.change(&m.rules)
			r := m.walks(1, x.walks, x.steps)
			if r.breach == "" {
				t.Fatalf("%d walks of %d steps broke nothing, want %s", x.walks, x.steps, x.breaks)
			}
			if r.breach[:3] != x.breaks {
				t.Errorf("got %s, want %s", r.breach, x.breaks)
			}
			t.Logf("%s, in %d steps, after %d", r.breach, len(r.trace), r.steps)
			if underRace {
				return
			}
			m.rules = shipped()
			if r := m.walks(1, 2000, x.steps); r.breach != "" {
				t.Error(m.report(r))
			}
		})
	}
}

// A leader whose lease lapsed, or who released, becomes the owner again in the same term: else the shard would never have one. A state
// machine that asked for a newer term would leave it without.
func TestModel_ClaimsAgain(t *testing.T) {
	lapsed := func(s *state) { s.end(0) }
	for name, prepare := range map[string]func(*state){"Lapsed": lapsed, "Released": released} {
		t.Run(name, func(t *testing.T) {
			m := &model{bounds: fixed(), rules: shipped()}
			two(&m.bounds)
			m.terms, m.length, m.forwards, m.eager, m.prepare = 1, 5, 0, true, prepare
			owned := func(s *state) bool { return m.good(s, 0) }
			if r := m.all(1_000_000, owned); r.whole || len(r.trace) == 0 {
				t.Errorf("no path to an owner in %d states", r.states)
			}
			accepts := m.rules.apply.accepts
			m.rules.apply.accepts = newerTermOnly(accepts)
			if r := m.all(1_000_000, owned); !r.whole || len(r.trace) > 0 {
				t.Errorf("a machine that asks for newer terms: got an owner after %d steps (whole %v), want none", len(r.trace), r.whole)
			}
		})
	}
}
