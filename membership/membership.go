package membership

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// leaveRounds is how many gossip rounds each of the two messages of a farewell gets: enough for a dozen copies.
	leaveRounds = 4
	// maxAsked is how many suspects are asked at one time.
	maxAsked = 4 * parallel
)

// A Membership is this node's part in gossip. Its methods are safe for concurrent use. Close ends it.
type Membership struct {
	config Config
	table  *table
	gossip *gossip
	out    *logWriter
	log    hclog.Logger
	done   chan struct{} // closed by Close
	wg     sync.WaitGroup

	// turn holds an element while the own record changes, and by leaving and closing, which exclude each other: the gossip library
	// panics when it is told to leave after it was stopped. It guards the two flags.
	turn    chan struct{} // no mutex: telling the library may take time, and virtual time stands still while a mutex is waited for
	leaving bool
	stopped bool
	once    sync.Once
	err     error // of Close
}

// Open starts to gossip and to look for others. It waits for nobody and does no name lookups itself. It returns
// ErrInvalid with all that is wrong in c, or ErrTooLarge when the record exceeds MaxRecord. Close must be called, and
// before the transport is closed.
func Open(c Config) (*Membership, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	self := claim{Record: c.Self, revision: 1}
	meta, err := encode(self)
	if err != nil {
		return nil, err
	}
	t := newTable(self, meta)
	out := newLogWriter(c.Logger, t.silent)
	g, err := openGossip(c, t, out)
	if err != nil {
		return nil, err
	}
	m := &Membership{config: c, table: t, gossip: g, out: out, log: c.Logger, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	// Stops when done is closed; Close waits for it.
	m.wg.Go(func() {
		defer cancel()
		m.attend()
	})
	// Stops when ctx ends, which attend's end brings about; Close waits for it.
	m.wg.Go(func() { m.seek(ctx) })
	return m, nil
}

// Update changes this node's own record by f and gossips it at once; it waits for no answer. ID, Incarnation and Nonce
// cannot change. It returns ErrTooLarge, ErrInvalid or ErrClosed, and then nothing has changed. Calls run one after the
// other; f must not call the Membership.
func (m *Membership) Update(f func(*Record)) error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if m.leaving || m.stopped {
		return ErrClosed
	}
	next := m.table.claim()
	old := next.Record.clone()
	f(&next.Record)
	next.Tags = maps.Clone(next.Tags)
	if next.ID != old.ID || next.Incarnation != old.Incarnation || next.Nonce != old.Nonce {
		return fmt.Errorf("%w: ID, Incarnation and Nonce are fixed", ErrInvalid)
	}
	return m.publishLocked(next)
}

// publishLocked makes c this node's claim. It needs the turn.
func (m *Membership) publishLocked(c claim) error {
	c.revision++
	meta, err := encode(c)
	if err != nil {
		return err
	}
	m.table.setSelf(c, meta)
	m.gossip.announce()
	return nil
}

// Self returns this node's own record as it is gossiped. The copy is the caller's. It never blocks on the network, and
// keeps answering after Close.
func (m *Membership) Self() Record { return m.table.claim().Record }

// Members returns all known members, this node included, sorted by ID: failed ones for three days and those that left for
// an hour. The copies are the caller's. It never blocks on the network; after Close it returns the last state.
func (m *Membership) Members() []Member { return m.table.members() }

// Member returns the member with that ID, and whether it is known. The copy is the caller's. It never blocks on the
// network; after Close it returns the last state.
func (m *Membership) Member(id string) (Member, bool) { return m.table.member(id) }

// Addr returns the newest known address of node id, host:port, and whether one is known. Failed members keep their last
// address for three days, so that they can still be tried. It never blocks on the network.
func (m *Membership) Addr(id string) (string, bool) { return m.table.addr(id) }

// Leave tells the others that this node goes for good, so that they show it as Left and not as Failed, and then closes.
// It takes about a second, less if ctx ends: then it closes at once and returns the context's error. ErrClosed says that
// the Membership was closed or leaving already.
func (m *Membership) Leave(ctx context.Context) error {
	m.turn <- struct{}{}
	if m.leaving || m.stopped {
		<-m.turn
		return ErrClosed
	}
	m.leaving = true
	c := m.table.claim()
	c.leaving = true
	err := m.publishLocked(c)
	<-m.turn
	if err != nil {
		return err
	}
	// The record says that the node means to go, the library's message says that it is gone. A record that is overtaken by
	// the message would be lost, so it gets a head start.
	if m.spread(ctx) {
		m.turn <- struct{}{}
		if !m.stopped {
			m.gossip.leave()
		}
		<-m.turn
		m.spread(ctx)
	}
	if err := m.Close(); err != nil {
		return err
	}
	return ctx.Err()
}

// spread gives gossip time for some rounds, and says whether there is a point in going on.
func (m *Membership) spread(ctx context.Context) bool {
	if m.alone() {
		return true
	}
	t := time.NewTimer(leaveRounds * gossipInterval)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-m.done:
	}
	return false
}

// Close stops gossip at once, without a word to the others, and waits for the Membership's goroutines: for OnConflict,
// and for a lookup that ignores its context. It is idempotent. The transport stays open; it must not be closed before.
// Goroutines of the gossip library may live on for up to 15 seconds; they hold no port and reach nobody.
func (m *Membership) Close() error {
	m.once.Do(func() {
		m.turn <- struct{}{}
		m.stopped = true
		close(m.done)
		m.err = m.gossip.shutdown()
		<-m.turn
		m.wg.Wait()
		m.out.closed.Store(true)
		m.table.freeze()
	})
	return m.err
}

func (m *Membership) closed() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// attend logs, reports rivals, and asks suspects again, until done is closed.
func (m *Membership) attend() {
	var tick <-chan time.Time // while there are suspects
	for {
		select {
		case <-m.table.wake:
		case <-tick:
			tick = nil
			m.ask()
		case <-m.done:
			return
		}
		notices, rivals := m.table.drain()
		for _, n := range notices {
			m.log.Warn(n.text, n.args...)
		}
		for _, r := range rivals {
			m.config.OnConflict(r)
		}
		switch {
		case len(m.table.suspects()) == 0:
			tick = nil
		case tick == nil:
			tick = time.After(m.config.ProbeInterval / 2)
		}
	}
}

// ask pings some suspects. The library does not tell when a suspicion was refuted, and it believes others who say that a
// member is dead.
func (m *Membership) ask() {
	ids := m.table.suspects()
	each(ids[:min(len(ids), maxAsked)], func(id string) {
		if m.gossip.ping(id) {
			m.table.answered(id)
		} else if !m.closed() {
			m.table.silent(id)
		}
	})
}
