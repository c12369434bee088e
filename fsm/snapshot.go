package fsm

import (
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// A Snapshot is the machine's state at one instant, to be written out while the machine goes on. It is used by one
// goroutine at a time, and must be closed, before the database is.
type Snapshot struct {
	view    *pebble.Snapshot
	sp      space
	version uint32
	applied uint64
}

// Prepare takes a snapshot of what is applied, in constant time. Errors: ErrClosed, or the storage's.
func (m *Machine) Prepare() (*Snapshot, error) {
	sp, err := m.home.enter()
	if err != nil {
		return nil, err
	}
	defer m.home.leave()
	s := &Snapshot{view: m.db.NewSnapshot(), sp: sp}
	c, err := readCounters(s.view, sp)
	if err == nil {
		s.version = c.version
		s.applied, err = readApplied(s.view, sp)
	}
	if err != nil {
		s.view.Close()
		return nil, fmt.Errorf("prepare snapshot: %w", err)
	}
	return s, nil
}

// Applied is the index of the last entry that the snapshot holds.
func (s *Snapshot) Applied() uint64 { return s.applied }

// Save writes the snapshot in the format of the cluster's version, so that every replica can read it. It blocks as w
// does. It may be called again; a failed one leaves a stream that Restore refuses. Errors: ErrStopped once stop is
// closed, w's, or the storage's.
func (s *Snapshot) Save(w io.Writer, stop <-chan struct{}) error {
	e, err := newEncoder(w, s.version, s.applied)
	if err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	err = eachRecord(s.view, s.sp, func(suffix, value []byte) error {
		if stopped(stop) {
			return ErrStopped
		}
		return e.record(suffix, value)
	})
	if err == nil {
		err = e.finish()
	}
	if err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return nil
}

// Close frees the snapshot. It is idempotent.
func (s *Snapshot) Close() error {
	if s.view == nil {
		return nil
	}
	err := s.view.Close()
	s.view = nil
	return err
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
