package nodetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/node"
)

// A Mirror is a copy of the records under a prefix that is kept by a watch, which it holds to its rules: revisions never fall, a change is told
// once, what is told follows from what was told before, and no progress is told before what it covers. Its methods are safe for concurrent use.
type Mirror struct {
	k      *checker
	name   string
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex // guards the fields below
	records  map[string]node.Record
	complete bool // it began with a listing, so records is all there is
	last     node.Revision
	told     map[change]bool
	events   int
	synced   int
	progress []node.Revision
	err      error
}

// change is one change of one record.
type change struct {
	key string
	at  node.Revision
}

// Mirror begins a watch of prefix through s, which goes on until it is stopped or the test ends.
func (c *Cluster) Mirror(s *node.Shard, prefix string, o *node.WatchOptions) *Mirror {
	m := newMirror(c.checks, fmt.Sprintf("watch %q of shard %d", prefix, s.ID()), o)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	c.t.Cleanup(m.cancel)
	go func() { // stops with ctx, or when the watch ends; Stop waits for it, and so does Values after it
		defer close(m.done)
		for e, err := range s.Watch(ctx, prefix, o) {
			m.hear(e, err)
		}
	}()
	return m
}

func newMirror(k *checker, name string, o *node.WatchOptions) *Mirror {
	return &Mirror{
		k: k, name: name, cancel: func() {}, done: make(chan struct{}), records: map[string]node.Record{}, told: map[change]bool{},
		complete: o != nil && o.Initial,
	}
}

// Stop ends the watch and waits until it has.
func (m *Mirror) Stop() {
	m.cancel()
	<-m.done
}

// Done is closed when the watch has ended.
func (m *Mirror) Done() <-chan struct{} { return m.done }

// Values are the values of the records that the watch has told of and that are there still, by key.
func (m *Mirror) Values() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	values := make(map[string]string, len(m.records))
	for key, r := range m.records {
		values[key] = string(r.Value)
	}
	return values
}

// Events is how many puts and deletes were told, Synced how many EventSynced.
func (m *Mirror) Events() (events, synced int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.events, m.synced
}

// Progress are the revisions of the EventProgress so far.
func (m *Mirror) Progress() []node.Revision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.progress)
}

// Err is the error that ended the watch, nil if none has.
func (m *Mirror) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Await waits until the mirror has what a listing through s has, and fails the test if that takes longer than d.
func (m *Mirror) Await(s *node.Shard, prefix string, d time.Duration) {
	m.k.c.t.Helper()
	began := time.Now()
	for {
		want, err := listing(s, prefix)
		if err == nil && maps.Equal(want, m.Values()) {
			return
		}
		if time.Since(began) > d || m.Err() != nil {
			m.k.c.t.Fatalf("%s: got %q after %v, want %q (%v)", m.name, m.Values(), time.Since(began), want, errors.Join(err, m.Err()))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func listing(s *node.Shard, prefix string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), converge)
	defer cancel()
	l, err := s.List(ctx, prefix, nil)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for r, err := range l.All() {
		if err != nil {
			return nil, err
		}
		values[r.Key] = string(r.Value)
	}
	return values, nil
}

// hear takes in what the watch told.
func (m *Mirror) hear(e node.Event, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.err = err
		return
	}
	if e.Revision < m.last {
		m.k.failf("%s: %v of revision %d came after revision %d", m.name, e.Type, e.Revision, m.last)
	}
	if n := len(m.progress); n > 0 && e.Revision <= m.progress[n-1] && e.Type != node.EventProgress {
		m.k.failf("%s: %v of revision %d came after progress %d", m.name, e.Type, e.Revision, m.progress[n-1])
	}
	m.last = max(m.last, e.Revision)
	switch e.Type {
	case node.EventSynced:
		m.synced++
	case node.EventProgress:
		m.progress = append(m.progress, e.Revision)
	default:
		m.events++
		m.changeLocked(e)
	}
}

// changeLocked applies a change, after looking whether it fits to what is known.
func (m *Mirror) changeLocked(e node.Event) {
	id := change{e.Record.Key, e.Revision}
	if m.told[id] {
		m.k.failf("%s: the change of %q at revision %d was told twice", m.name, id.key, id.at)
	}
	m.told[id] = true
	was, known := m.records[id.key]
	listed := e.Type == node.EventPut && e.Record.Mod != e.Revision // what a listing tells has no change before it
	if m.complete && m.synced > 0 && !listed && (known && e.Prev.Mod != was.Mod || !known && e.Prev.Mod != 0) && !m.relistedLocked(e) {
		m.k.failf("%s: the change of %q at revision %d follows revision %d, and %d was told before", m.name, id.key, id.at, e.Prev.Mod, was.Mod)
	}
	if e.Type == node.EventDelete {
		delete(m.records, id.key)
		return
	}
	m.records[id.key] = e.Record
}

// relistedLocked says whether a delete may have been worked out from a listing: it does not say what was before.
func (m *Mirror) relistedLocked(e node.Event) bool {
	return e.Type == node.EventDelete && e.Prev.Key == ""
}
