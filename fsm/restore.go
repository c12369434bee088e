package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// restoreBatch is how much a Restore gathers before it writes, in bytes.
const restoreBatch = 1 << 20

// Restore replaces the whole state by a snapshot's, be it newer or older, durably. The snapshot is written beside the
// state and takes its place in one step after all of it was read and checked: if Restore fails, or the process dies
// at any point, the state is the old one or the new one, whole. Reads go on and see the old state until then. Errors,
// all with the old state in place: ErrVersion, ErrCorrupt, ErrStopped, ErrHalted, ErrFailed, ErrClosed, r's, or the
// storage's.
func (m *Machine) Restore(r io.Reader, stop <-chan struct{}) error {
	if err := m.restore(r, stop); err != nil {
		return fmt.Errorf("restore state machine of shard %d, replica %d: %w", m.shard, m.replica, err)
	}
	return nil
}

func (m *Machine) restore(r io.Reader, stop <-chan struct{}) error {
	if err := m.Err(); err != nil {
		return err
	}
	old, err := m.home.enter()
	if err != nil {
		return err
	}
	sp := old.next()
	st, applied, err := m.stage(sp, r, stop)
	if err != nil {
		err = errors.Join(err, sweep(m.db, old))
	} else {
		err = m.flip(sp)
	}
	m.home.leave()
	if err != nil {
		return err
	}
	return m.adopt(sp, st, applied)
}

// stage writes a snapshot into an unused space and loads it from there.
func (m *Machine) stage(sp space, r io.Reader, stop <-chan struct{}) (*state, uint64, error) {
	d, err := newDecoder(r, m.options.MaxVersion)
	if err != nil {
		return nil, 0, err
	}
	if err := clearRange(m.db, sp[:], sp.end()); err != nil {
		return nil, 0, err
	}
	w := stager{db: m.db, sp: sp, batch: m.db.NewBatch()}
	defer func() { w.batch.Close() }()
	for {
		if stopped(stop) {
			return nil, 0, ErrStopped
		}
		suffix, value, err := d.record()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		if err := w.add(suffix, value); err != nil {
			return nil, 0, err
		}
	}
	if err := w.finish(d.applied); err != nil {
		return nil, 0, err
	}
	st, applied, err := load(m.db, sp, m.options.MaxVersion)
	if err == nil && st.counters.version != d.version {
		err = fmt.Errorf("%w: format version %d, state's %d", ErrCorrupt, d.version, st.counters.version)
	}
	return st, applied, err
}

// flip makes a staged space the current one on disk, in one synced write. What was staged is before it in the storage's
// log, hence durable with it. If it fails nobody knows which one is current, so the machine ends.
func (m *Machine) flip(sp space) error {
	pointer := binary.BigEndian.AppendUint64(nil, sp.generation())
	if err := m.db.Set(pointerKey(m.shard, m.replica), pointer, pebble.Sync); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.fail(err)
	}
	return nil
}

// adopt makes a staged space the current one in memory, once nobody reads the old one any more, and then deletes the
// old one. Readers wait for neither the sync before nor the deletion after; if that is lost, Open sweeps.
func (m *Machine) adopt(sp space, st *state, applied uint64) error {
	m.home.mu.Lock()
	if m.home.closed {
		m.home.mu.Unlock()
		return ErrClosed
	}
	m.home.sp = sp
	m.mu.Lock()
	m.st = st
	m.applied.Store(applied)
	m.mu.Unlock()
	m.home.mu.Unlock()
	if _, err := m.home.enter(); err != nil {
		return nil // closed meanwhile: Open sweeps
	}
	defer m.home.leave()
	return sweep(m.db, sp)
}
