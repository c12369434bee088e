// Package replica adapts the replicated state machine of package fsm to dragonboat: one Replica is one shard's state on
// this node. Dragonboat calls it from its apply workers; what happens there is handed to an Observer at once.
package replica

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/oarlock/oarlock/fsm"
)

// An Observer hears what happens to a shard's state, from dragonboat's apply workers: its methods must not block and must
// not call the Raft host.
type Observer interface {
	// Opened is called with the state as it was found on disk, before anything is applied to it.
	Opened(m *fsm.Machine)
	// Applied is called after the entries were applied, with what came of each.
	Applied(m *fsm.Machine, as []fsm.Applied)
	// Restored is called after the state was replaced by a snapshot.
	Restored(m *fsm.Machine)
	// Halted is called once, when the state machine can apply nothing more, with the reason. The replica must then be
	// stopped; until Released is closed it applies nothing and takes no snapshot.
	Halted(err error)
	// Released is closed when the replica may give dragonboat's worker back.
	Released() <-chan struct{}
}

// A Replica is a dragonboat on-disk state machine.
type Replica struct {
	db             *pebble.DB
	shard, replica uint64
	options        fsm.Options
	do             func(call func() error) error
	observer       Observer
	machine        *fsm.Machine
	halt           sync.Once
}

var _ sm.IOnDiskStateMachine = (*Replica)(nil)

// New returns the state of (shard, replica) in db. do runs what writes to db, and returns early with an error if db has failed
// for good.
func New(db *pebble.DB, shard, replica uint64, o fsm.Options, do func(call func() error) error, obs Observer) *Replica {
	return &Replica{db: db, shard: shard, replica: replica, options: o, do: do, observer: obs}
}

// Open loads the state and returns the index of the last entry in it. State that cannot be opened halts the replica: an
// error returned to dragonboat would end the process.
func (r *Replica) Open(<-chan struct{}) (uint64, error) {
	m, err := fsm.Open(r.db, r.shard, r.replica, r.options)
	if err != nil {
		r.halted(fmt.Errorf("open state of shard %d: %w", r.shard, err))
		return 0, sm.ErrOpenStopped
	}
	r.machine = m
	r.observer.Opened(m)
	return m.Applied(), nil
}

// Update applies entries. What a command does wrong is its result; an error of the machine (an entry of a version that it does
// not know, a disk that failed) stops this shard here, loudly, and leaves the process alive.
func (r *Replica) Update(entries []sm.Entry) ([]sm.Entry, error) {
	if r.machine == nil {
		return entries, nil
	}
	in := make([]fsm.Entry, len(entries))
	for i := range entries {
		in[i] = fsm.Entry{Index: entries[i].Index, Data: entries[i].Cmd}
	}
	type outcome struct {
		applied []fsm.Applied
		err     error
	}
	var out atomic.Pointer[outcome] // nil if the call was left behind
	err := r.do(func() error {
		as, err := r.machine.Apply(in)
		out.Store(&outcome{as, err})
		return err
	})
	if o := out.Load(); o != nil && len(o.applied) > 0 {
		r.observer.Applied(r.machine, o.applied)
	}
	if err != nil {
		r.halted(fmt.Errorf("apply to shard %d: %w", r.shard, err))
	}
	return entries, nil
}

// halted reports err and holds dragonboat's worker until the replica has been stopped: were the entry passed over, a
// snapshot's index could run ahead of the state.
func (r *Replica) halted(err error) {
	r.halt.Do(func() { r.observer.Halted(err) })
	<-r.observer.Released()
}

// Lookup is not used: reads go to the machine itself, under the owner's lease.
func (r *Replica) Lookup(any) (any, error) { return nil, errors.ErrUnsupported }

// Sync makes what was applied durable. A failure is final for the replica.
func (r *Replica) Sync() error {
	if r.machine == nil {
		return nil
	}
	if err := r.do(r.machine.Sync); err != nil {
		r.halted(fmt.Errorf("sync state of shard %d: %w", r.shard, err))
	}
	return nil
}

// PrepareSnapshot pins the state as it is.
func (r *Replica) PrepareSnapshot() (any, error) {
	s, err := r.machine.Prepare()
	if err != nil {
		r.halted(fmt.Errorf("pin state of shard %d: %w", r.shard, err))
		return nil, sm.ErrSnapshotStopped
	}
	return s, nil
}

// SaveSnapshot streams the pinned state.
func (r *Replica) SaveSnapshot(pinned any, w io.Writer, stop <-chan struct{}) error {
	s := pinned.(*fsm.Snapshot)
	defer s.Close()
	if err := s.Save(w, stop); err != nil {
		select {
		case <-stop:
			return sm.ErrSnapshotStopped
		default:
			// The receiver broke off, or a read failed: dragonboat gives this stream up and tries again later.
			return fmt.Errorf("%w: %w", sm.ErrSnapshotStreaming, err)
		}
	}
	return nil
}

// RecoverFromSnapshot replaces the state.
func (r *Replica) RecoverFromSnapshot(in io.Reader, stop <-chan struct{}) error {
	if err := r.do(func() error { return r.machine.Restore(in, stop) }); err != nil {
		select {
		case <-stop:
			return sm.ErrSnapshotStopped
		default:
		}
		r.halted(fmt.Errorf("restore shard %d: %w", r.shard, err))
		return sm.ErrSnapshotStopped
	}
	r.observer.Restored(r.machine)
	return nil
}

// Close closes the machine. The database belongs to the node.
func (r *Replica) Close() error {
	if r.machine == nil {
		return nil
	}
	return r.machine.Close()
}
