package owner

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
)

// A result is what a search came to.
type result struct {
	breach string   // "" if the guarantees held
	trace  []action // to the breach, or to the goal
	states int      // seen, by the complete search
	steps  int      // taken
	whole  bool     // every state was seen
}

// report is the result for a person to read: each step of the trace and the states around the end.
func (m *model) report(r result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after %d steps:\n", r.breach, len(r.trace))
	s := m.start()
	for i, a := range r.trace {
		m.do(&s, a)
		fmt.Fprintf(&b, "%3d %s\n", i+1, a)
		if i >= len(r.trace)-3 {
			b.WriteString(s.String())
		}
	}
	return b.String()
}

// drift is the kind of a tick on which a clock drifts, to a walk.
const drift = moves

// A taste is how a walk chooses: each draws its own, so that in some a kind of step is rare or absent. An eager node takes
// steps of some kinds as soon as it can, as most do most of the time; what is not eager comes at any time, or never.
type taste struct {
	weight [moves + 1]int
	eager  [members][moves + 1]bool
	link   [members][members]bool // eager appends
}

// eagerness is how many tastes in ten are eager for a kind of step.
var eagerness = map[move]int{
	publish: 7, take: 8, applyNext: 8, look: 8, readHandle: 8, readDone: 8, appendOK: 8, proposeQueued: 7, confirmStart: 5, claimStart: 5,
	claimPropose: 6, deliver: 4, account: 7, receive: 4, send: 3, expire: 5, checkpoint: 3, carry: 2, readServe: 2,
}

func draw(rng *rand.Rand) (w taste) {
	for k := range w.weight {
		w.weight[k] = [5]int{1, 4, 8, 16, 16}[rng.IntN(5)]
	}
	w.weight[tick] = [3]int{8, 16, 32}[rng.IntN(3)]
	w.weight[drift] = [3]int{0, 4, 16}[rng.IntN(3)]
	for _, k := range []move{lose, giveUp, readGiveUp, drop, restart, claimGiveUp, appendLost, lapse} {
		w.weight[k] = [4]int{0, 0, 1, 4}[rng.IntN(4)]
	}
	for i := range w.eager {
		for k := range moves {
			w.eager[i][k] = rng.IntN(10) < eagerness[k]
		}
		for j := range w.link[i] {
			w.link[i][j] = rng.IntN(10) < 6
		}
	}
	return w
}

// wants says whether the step would be taken at once.
func (w *taste) wants(m *model, s *state, a action) bool {
	i := int(a.a)
	switch a.move {
	case appendOK:
		return w.eager[i][appendOK] && w.link[i][a.b]
	case confirmStart:
		n := &s.nodes[i]
		return w.eager[i][confirmStart] && n.own.word < int64(n.now+m.lease[i])
	case send:
		return w.eager[0][send] && a.a == 0 && (!s.holder.has || s.holder.word < int64(s.holder.now+m.ttl))
	case deliver, account, receive, carry:
		return w.eager[0][a.move]
	case tick, elect:
		return false
	}
	return w.eager[i][a.move]
}

func (a action) kind() move {
	if a.move == tick && a.a != even {
		return drift
	}
	return a.move
}

// pick chooses an eager step if there is one, else a kind of step by weight, and one of that kind evenly.
func (w *taste) pick(rng *rand.Rand, m *model, s *state, can []action) (a action, ok bool) {
	eager := 0
	for k, a := range can {
		if w.wants(m, s, a) {
			can[k], can[eager] = can[eager], can[k]
			eager++
		}
	}
	if eager > 0 {
		return can[rng.IntN(eager)], true
	}
	var count [moves + 1]int
	total := 0
	for _, a := range can {
		k := a.kind()
		if count[k]++; count[k] == 1 {
			total += w.weight[k]
		}
	}
	if total == 0 {
		return a, false
	}
	x := rng.IntN(total)
	kind := move(0)
	for ; count[kind] == 0 || x >= w.weight[kind]; kind++ {
		if count[kind] > 0 {
			x -= w.weight[kind]
		}
	}
	n := rng.IntN(count[kind])
	for _, a := range can {
		if a.kind() == kind {
			if n == 0 {
				return a, true
			}
			n--
		}
	}
	panic("no step of the kind")
}

// walk takes at most steps random steps from the start.
func (m *model) walk(rng *rand.Rand, steps int, path []action) (breach string, taken []action) {
	s := m.start()
	w := draw(rng)
	can := make([]action, 0, 64)
	for range steps {
		can = can[:0]
		m.enabled(&s, func(a action) { can = append(can, a) })
		a, ok := w.pick(rng, m, &s, can)
		if !ok {
			return "", path
		}
		path = append(path, a)
		if breach := m.do(&s, a); breach != "" {
			return breach, path
		}
	}
	return "", path
}

// walks makes walks until a guarantee breaks: each from its own seed, so that what is found is found again.
func (m *model) walks(seed uint64, count, steps int) (r result) {
	path := make([]action, 0, steps)
	for n := range count {
		breach, taken := m.walk(rand.New(rand.NewPCG(seed, uint64(n))), steps, path[:0])
		r.steps += len(taken)
		if breach != "" {
			r.breach, r.trace = breach, append([]action(nil), taken...)
			return r
		}
	}
	return r
}

// all takes every step from every state that can be reached, depth first, until it saw limit states. goal, if not nil, ends
// the search where it holds.
func (m *model) all(limit int, goal func(*state) bool) (r result) {
	seen := map[uint64]struct{}{}
	hash := maphash.MakeSeed()
	type frame struct {
		s    state
		can  []action
		next int
	}
	var stack []frame
	enter := func(s state) bool {
		id := maphash.Comparable(hash, m.canonical(s))
		if _, ok := seen[id]; ok {
			return false
		}
		seen[id] = struct{}{}
		f := frame{s: s}
		m.enabled(&s, func(a action) { f.can = append(f.can, a) })
		stack = append(stack, f)
		return true
	}
	enter(m.start())
	for len(stack) > 0 {
		if r.states = len(seen); r.states >= limit {
			return r
		}
		f := &stack[len(stack)-1]
		if f.next == len(f.can) {
			stack = stack[:len(stack)-1]
			continue
		}
		a := f.can[f.next]
		f.next++
		s := f.s
		r.steps++
		r.breach = m.do(&s, a)
		if r.breach != "" || goal != nil && goal(&s) {
			for _, f := range stack {
				r.trace = append(r.trace, f.can[f.next-1])
			}
			return r
		}
		enter(s)
	}
	r.whole = true
	return r
}

// canonical makes states equal that no rule can tell apart: instants count from now, and an age that is past every wait is one.
func (m *model) canonical(s state) state {
	lease, limit := int32(0), m.ttl+tickUnits
	for _, l := range m.lease {
		lease = max(lease, l)
	}
	ago := func(t *int32, now, most int32) { *t = max(*t-now, -most) }
	word := func(w *int64, now int32) {
		if Good(*w, unit(now)) {
			*w -= int64(now)
		} else {
			*w = min(*w, 0)
		}
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.read.phase != readIdle {
			ago(&n.read.t0, n.now, lease)
		}
		if n.claim.phase != claimIdle {
			ago(&n.claim.t0, n.now, lease+tickUnits)
			ago(&n.claim.readAt, n.now, limit)
			if !m.sessions {
				n.claim.readAt = 0
			}
		}
		for _, x := range [2]*slot{&n.claim.slot, &n.batch} {
			if x.phase != slotFree {
				ago(&x.t0, n.now, lease)
			}
		}
		if n.own.token != 0 {
			word(&n.own.word, n.now)
		}
		if n.own.known {
			n.own.session.Renewed = max(n.own.session.Renewed-unit(n.now), -unit(limit))
		}
		n.now = 0
	}
	h := &s.holder
	ago(&h.first, h.now, limit)
	word(&h.word, h.now)
	for k := range s.messages {
		if x := &s.messages[k]; x.phase != noMessage {
			ago(&x.sent, h.now, limit)
		}
	}
	h.now = 0
	return s
}
