package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

func (l loader) claimant(rest, value []byte) error {
	id, seq, err := parseNumbers(rest, 2)
	if err != nil {
		return err
	}
	c, keys, err := decodeClaimant(value)
	if err != nil {
		return err
	}
	c.seq = seq
	if c.session = l.st.sessions[Token(id)]; c.session == nil || seq == 0 {
		return fmt.Errorf("%w: claimant %d of session %d hangs on nothing", ErrCorrupt, seq, id)
	}
	if err := l.minted(max(c.ticket, c.token)); err != nil {
		return err
	}
	for _, key := range keys {
		k := l.st.at(key)
		c.locks = append(c.locks, k)
		if c.token != 0 {
			k.holders = append(k.holders, c)
		} else {
			k.waiters = append(k.waiters, c)
		}
	}
	if c.token != 0 && c.maxHold > 0 {
		l.st.timed.add(c)
	}
	c.session.refs = append(c.session.refs, c) // in order of seq, like the keys
	return nil
}

func (l loader) total(rest, value []byte) error {
	name, err := parseName(rest)
	if err != nil {
		return err
	}
	n, err := decodeTotal(value)
	l.st.at(lockKey{fsmpb.Lock_LOCK, name}).permits = n
	return err
}

func (l loader) closure(rest, value []byte) error {
	key, token, err := parseNamed(rest)
	if err != nil {
		return err
	}
	grace, err := decodeClosure(value)
	if err != nil {
		return err
	}
	if token == 0 {
		return fmt.Errorf("%w: lock %q is closed by no grant", ErrCorrupt, key.name)
	}
	k := l.st.at(key)
	x := &closure{lock: k, token: Token(token), grace: grace}
	k.closures = append(k.closures, x) // in order of token, like the keys
	l.st.closed.add(x)
	return l.minted(x.token)
}

func (l loader) job(rest, value []byte) error {
	name, err := parseName(rest)
	if err != nil {
		return err
	}
	j, _, err := decodeJob([]byte(name), value)
	if err != nil {
		return err
	}
	l.st.jobs[name] = j
	if j.keep > 0 {
		l.st.kept.add(j)
	}
	return l.minted(j.done)
}

// finish puts the queues in their order, which is not that of the keys, and checks that they are sound.
func (l loader) finish() error {
	for _, k := range l.st.locks {
		slices.SortFunc(k.holders, func(a, b *claimant) int { return cmp.Compare(a.token, b.token) })
		slices.SortFunc(k.waiters, func(a, b *claimant) int { return cmp.Compare(a.ticket, b.ticket) })
	}
	for _, k := range l.st.locks {
		if what := l.st.unsound(k); what != "" {
			return fmt.Errorf("%w: lock %q of kind %d %s", ErrCorrupt, k.key.name, k.key.kind, what)
		}
	}
	l.st.timed.sort(func(a, b *claimant) int { return cmp.Compare(a.token, b.token) })
	completions := map[Token]bool{}
	for _, j := range l.st.jobs {
		switch {
		case completions[j.done]:
			return fmt.Errorf("%w: job %q has another's completion", ErrCorrupt, j.name)
		case j.born > l.st.passed:
			return fmt.Errorf("%w: job %q was completed after %v of %v", ErrCorrupt, j.name, j.born, l.st.passed)
		}
		completions[j.done] = j.done != 0
	}
	l.st.kept.sort(func(a, b *job) int { return cmp.Compare(a.done, b.done) })
	return nil
}

// unsound says what about a lock cannot have come about here, empty if nothing.
func (st *state) unsound(l *lock) string {
	for i, c := range l.holders {
		switch {
		case i > 0 && c.token == l.holders[i-1].token:
			return "is held twice under one token"
		case c.mode != l.holders[0].mode || c.mode == fsmpb.Lock_EXCLUSIVE && len(l.holders) > 1:
			return "is held by who exclude each other"
		}
	}
	for i, c := range l.waiters {
		if i > 0 && c.ticket == l.waiters[i-1].ticket {
			return "has two waiters with one ticket"
		}
	}
	for _, cs := range [][]*claimant{l.holders, l.waiters} {
		for _, c := range cs {
			if (c.mode == fsmpb.Lock_PERMIT) != (l.permits > 0) {
				return "is both mutex and semaphore"
			}
		}
	}
	switch j := st.jobs[l.key.name]; {
	case l.idle():
		return "is nobody's"
	case len(l.waiters) > 0 && l.waiters[0].grantable():
		return "is free and has waiters"
	case l.key.kind != fsmpb.Lock_JOB:
	case len(l.holders) > 0 && j == nil, len(l.holders)+len(l.waiters) > 0 && j != nil && j.done != 0:
		return "is run or waited for against its record"
	}
	return ""
}
