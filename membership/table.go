package membership

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A table is all that is known about members. The gossip library calls into it under locks of its own, so its methods
// never block, call nobody, and hold their mutex for short.
type table struct {
	wake chan struct{} // capacity 1: notices or rivals were added

	// mu guards all below. It is a leaf: nothing else is locked or called while it is held.
	mu        sync.Mutex
	self      claim
	meta      []byte // the encoded self
	left      bool   // this node has left
	frozen    bool   // closed: nothing changes any more
	entries   map[string]*entry
	version   uint64 // raised by each visible change
	own       uint64 // version of the last change of this node
	changed   chan struct{}
	notices   []notice
	complaint map[string]struct{} // what was complained about
	rivals    rivals              // other processes with this node's ID
	boots     map[string]boot     // by node: the process that speaks for it
}

// An entry is a member other than this node.
type entry struct {
	claim
	meta    []byte    // the encoded claim
	up      bool      // as the gossip library says, which believes any member that declares another dead
	silent  bool      // it did not answer the last probe of ours
	since   time.Time // when it went down
	version uint64    // of the table, at the last visible change
}

// A notice is something to log, once no lock is held.
type notice struct {
	text string
	args []any
}

func newTable(self claim, meta []byte) *table {
	return &table{
		wake:      make(chan struct{}, 1),
		self:      self,
		meta:      meta,
		entries:   make(map[string]*entry),
		version:   1,
		own:       1,
		changed:   make(chan struct{}),
		complaint: make(map[string]struct{}),
		boots:     make(map[string]boot),
	}
}

// state takes a member for failed only if others gave it up and this node got no answer either. Else one sick member,
// that hears nobody and gives up everybody, would make all look failed for a moment.
func (e *entry) state() State {
	switch {
	case !e.up && e.leaving:
		return Left
	case !e.up && e.silent:
		return Failed
	case !e.up || e.silent:
		return Suspect
	default:
		return Alive
	}
}

func (e *entry) member() Member { return Member{Record: e.Record.clone(), State: e.state()} }

// vet looks at a message that says node name lives. An error makes the gossip library ignore it. What is newer than the
// known record is taken at once, before the library decides about its own state, since the address in it may be the only
// one at which the node can be reached. Whether the node is up is not concluded from it: it may be an old rumour.
func (t *table) vet(name string, meta []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frozen {
		return ErrClosed
	}
	if name == t.self.ID {
		t.vetSelfLocked(meta)
		return nil // the library answers whatever is said wrongly about this node
	}
	e := t.entries[name]
	if e != nil && bytes.Equal(e.meta, meta) && t.boots[name] == e.boot() {
		return nil
	}
	c, err := decode(name, meta)
	if err != nil {
		t.complainLocked(name, "cannot read a member's record", "member", short(name), "err", err)
		return err
	}
	if err := t.bootLocked(c.ID, c.boot()); err != nil {
		if errors.Is(err, errRival) {
			t.complainLocked("rivals "+c.ID, "two processes claim one member's id", "member", c.ID, "addr", c.Addr)
		}
		return err
	}
	switch {
	case e != nil:
		t.takeLocked(e, c, meta)
	case !t.roomLocked():
		t.complainLocked("full", "too many members, more are ignored", "limit", maxMembers, "member", name)
		return errFull
	}
	return nil
}

// vetSelfLocked looks at what others say of this node. Records of its earlier starts are usual: peers remember them.
func (t *table) vetSelfLocked(meta []byte) {
	if bytes.Equal(meta, t.meta) {
		return
	}
	c, err := decode(t.self.ID, meta)
	if err != nil || c.Nonce == t.self.Nonce || c.Incarnation < t.self.Incarnation {
		return
	}
	t.complainLocked("rival "+strconv.FormatUint(c.Nonce, 16), "another process claims this node's id", "addr", c.Addr, "incarnation", c.Incarnation)
	if t.rivals.add(c.Record.clone(), time.Now()) {
		t.wakeLocked()
	}
}

// takeLocked replaces e's claim by c if c is newer, and says whether it did.
func (t *table) takeLocked(e *entry, c claim, meta []byte) bool {
	if !c.newer(e.claim) {
		return false
	}
	e.claim, e.meta = c, bytes.Clone(meta)
	t.touchLocked(e)
	return true
}

// heard is called when the gossip library counts node name as up.
func (t *table) heard(name string, meta []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name == t.self.ID || t.frozen {
		return
	}
	c, err := decode(name, meta)
	if err != nil {
		return // vet complained
	}
	e := t.entries[name]
	if e == nil {
		e = &entry{claim: c, meta: bytes.Clone(meta), up: true}
		t.entries[name] = e
		t.touchLocked(e)
		return
	}
	t.takeLocked(e, c, meta)
	if !e.up && c.Nonce == e.Nonce {
		e.up, e.silent = true, false
		t.touchLocked(e)
	}
}

// gone is called when the gossip library counts node name as dead, or as having left.
func (t *table) gone(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frozen {
		return
	}
	if name == t.self.ID {
		t.left = true
		t.touchSelfLocked()
		return
	}
	if e := t.entries[name]; e != nil && e.up {
		e.up, e.since = false, time.Now()
		t.touchLocked(e)
	}
}

// silent is called when node name did not answer a probe of ours.
func (t *table) silent(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[name]; e != nil && !e.silent && !t.frozen {
		e.silent = true
		t.touchLocked(e)
	}
}

// answered is called when it did. A member that was given up has to clear itself before it counts.
func (t *table) answered(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[name]; e != nil && e.up && e.silent && !t.frozen {
		e.silent = false
		t.touchLocked(e)
	}
}

// setSelf replaces this node's own claim.
func (t *table) setSelf(c claim, meta []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.self, t.meta = c, meta
	t.touchSelfLocked()
}

// claim is a copy of this node's own claim.
func (t *table) claim() claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.self
	c.Record = c.Record.clone()
	return c
}

// encoded is this node's own claim as it is gossiped. It is never changed in place.
func (t *table) encoded() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.meta
}

// freeze keeps the state as it is and wakes those who wait for a change.
func (t *table) freeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
	t.bumpLocked()
}

// touchLocked makes a change of e visible, touchSelfLocked one of this node.
func (t *table) touchLocked(e *entry) {
	t.bumpLocked()
	e.version = t.version
}

func (t *table) touchSelfLocked() {
	t.bumpLocked()
	t.own = t.version
}

func (t *table) bumpLocked() {
	t.version++
	close(t.changed)
	t.changed = make(chan struct{})
	t.wakeLocked()
}

// short bounds what is logged of a name that a peer sent.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "?") }

func byID(a, b Member) int { return cmp.Compare(a.ID, b.ID) }
