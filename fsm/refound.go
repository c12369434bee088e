package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Refound prepares state for a log that does not continue its own: a restored backup, or a shard repaired after it
// lost its majority. It clears the last claim and its term, lets the new era's tokens begin, and sets the applied index
// to that from which the new log goes on, all durably. It is no command: it must be done offline, and to every
// replica that starts the new log alike. Records, sessions and locks stay; sessions are ended by silence like any
// other. Errors, with nothing changed: ErrInvalid if the era is not above that of every token there is; ErrHalted,
// ErrFailed, ErrClosed.
func (m *Machine) Refound(era, applied uint64) error {
	if err := m.refound(era, applied); err != nil {
		return fmt.Errorf("refound shard %d, replica %d: %w", m.shard, m.replica, err)
	}
	return nil
}

func (m *Machine) refound(era, applied uint64) error {
	sp, err := m.home.enter()
	if err != nil {
		return err
	}
	defer m.home.leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped != nil {
		return m.stopped
	}
	c := m.st.counters
	if era > MaxEra || era <= c.tokens.Era() {
		return fmt.Errorf("%w: era %d, must be above %d and up to %d", ErrInvalid, era, c.tokens.Era(), uint64(MaxEra))
	}
	c.tokens = FirstToken(era)
	b := m.db.NewBatch()
	defer b.Close()
	if err := errors.Join(
		b.Delete(sp.start(nil, kindClaim), nil),
		b.Set(sp.start(nil, kindCounters), appendCounters(nil, c), nil),
		b.Set(sp.start(nil, kindApplied), binary.BigEndian.AppendUint64(nil, applied), nil),
		b.Commit(pebble.Sync),
	); err != nil {
		return m.fail(err)
	}
	m.st.claim, m.st.counters = Claim{}, c
	m.applied.Store(applied)
	return nil
}
