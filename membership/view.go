package membership

import (
	"context"
	"iter"
	"slices"
)

// selfMemberLocked is this node as a member.
func (t *table) selfMemberLocked() Member {
	m := Member{Record: t.self.Record.clone(), State: Alive}
	if t.left {
		m.State = Left
	}
	return m
}

func (t *table) members() []Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Member, 0, len(t.entries)+1)
	all = append(all, t.selfMemberLocked())
	for _, e := range t.entries {
		all = append(all, e.member())
	}
	slices.SortFunc(all, byID)
	return all
}

func (t *table) member(id string) (Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == t.self.ID {
		return t.selfMemberLocked(), true
	}
	if e := t.entries[id]; e != nil {
		return e.member(), true
	}
	return Member{}, false
}

func (t *table) addr(id string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == t.self.ID {
		return t.self.Addr, true
	}
	if e := t.entries[id]; e != nil {
		return e.Addr, true
	}
	return "", false
}

// peers are the addresses of the other members that gossip counts as up, and of those that went down without leaving.
func (t *table) peers() (up, down []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		switch {
		case e.up:
			up = append(up, e.Addr)
		case !e.leaving:
			down = append(down, e.Addr)
		}
	}
	return up, down
}

// suspects are the ids of members of which it is not sure whether they answer.
func (t *table) suspects() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, e := range t.entries {
		if e.state() == Suspect {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *table) changes() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// drain hands out what is to be logged and reported.
func (t *table) drain() ([]notice, []Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.notices
	t.notices = nil
	return n, t.rivals.take()
}

// A cursor reads the changes of a table. It holds a position, not a queue: a change that was overtaken is not seen.
type cursor struct {
	t    *table
	seen uint64 // version up to which all was seen
	todo []string
	upTo uint64 // version at which todo was made
}

// next returns the next member that changed. Without one it returns a channel that is closed at the next change.
func (c *cursor) next() (Member, <-chan struct{}) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for {
		for len(c.todo) > 0 {
			id := c.todo[0]
			c.todo = c.todo[1:]
			e := c.t.entries[id]
			if e == nil || e.version > c.upTo {
				continue // forgotten, or changed again: the next round has it
			}
			return e.member(), nil
		}
		c.seen = c.upTo
		if c.seen == c.t.version {
			return Member{}, c.t.changed
		}
		c.upTo = c.t.version
		c.fillLocked()
		if c.t.own > c.seen {
			return c.t.selfMemberLocked(), nil
		}
	}
}

// fillLocked collects the members that changed since seen, in the order of their changes.
func (c *cursor) fillLocked() {
	var changed []*entry
	for _, e := range c.t.entries {
		if e.version > c.seen {
			changed = append(changed, e)
		}
	}
	slices.SortFunc(changed, func(a, b *entry) int { return int(a.version) - int(b.version) })
	c.todo = c.todo[:0]
	for _, e := range changed {
		c.todo = append(c.todo, e.ID)
	}
}

// Changed returns a channel that is closed at the next change of any member's record or state, and by Close. So that
// nothing is missed: get the channel, then look, then wait. It never blocks, and costs nothing while nobody waits.
func (m *Membership) Changed() <-chan struct{} { return m.table.changes() }

// Watch yields the members as they are, this node included, and then each one that changes, in its latest state. A reader
// that is slow skips states that were overtaken and blocks nobody. It ends when ctx ends, at Close, or when the loop is
// left; each loop over it starts afresh. A member that is forgotten, long after it went, is not mentioned again.
func (m *Membership) Watch(ctx context.Context) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		c := cursor{t: m.table}
		for ctx.Err() == nil && !m.closed() {
			member, wait := c.next()
			if wait == nil {
				if !yield(member) {
					return
				}
				continue
			}
			select {
			case <-wait:
			case <-ctx.Done():
			case <-m.done:
			}
		}
	}
}
