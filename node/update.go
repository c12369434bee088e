package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Update replaces the value of key by what fn makes of it: nil for a key without a record. If the record was changed meanwhile, fn is run again on the
// fresh value, until ctx ends, so it must have no effects of its own. An error of fn ends it, wrapped, with nothing done.
// Other errors are those of Put. TTL and session of the record are not kept.
func (s *Shard) Update(ctx context.Context, key string, fn func(old []byte) ([]byte, error)) (Revision, error) {
	if fn == nil {
		return 0, fmt.Errorf("update %q: %w: fn is nil", key, ErrInvalid)
	}
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return 0, fmt.Errorf("update %q: %w", key, err)
	}
	defer end()
	fresh := *s
	fresh.stale = 0
	for {
		old, err := fresh.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return 0, err
		}
		if err == nil && old.Value == nil {
			old.Value = []byte{} // a record that is empty, not absent
		}
		value, err := fn(old.Value)
		if err != nil {
			return 0, fmt.Errorf("update %q: %w", key, err)
		}
		rev, err := fresh.CompareAndSwap(ctx, key, old.Mod, value, nil)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
		if ctx.Err() != nil {
			return 0, gaveUp(ctx, "update", false)
		}
	}
}

// Add adds delta to the counter key, whose value is a decimal number, and returns the sum. A key without a record counts as 0. It is done once, however often the
// answer is lost. ErrInvalid: the value is no number, or the sum does not fit 64 bits, and nothing was done. Other errors are those of Put.
func (s *Shard) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := checkKey("add", key); err != nil {
		return 0, err
	}
	res, err := s.write(ctx, "add", &fsmpb.Op{Kind: &fsmpb.Op_Add{Add: &fsmpb.Add{Key: []byte(key), Delta: delta}}})
	return res.GetNumber(), err
}

// DeletePrefix removes the records whose keys begin with prefix and returns how many, and the revision of the last change, 0 if there was nothing to remove.
// Up to 1,024 records, or 4 MiB of values, go in one change; more in several. An error after the first of them wraps ErrUnknown: some are removed.
// Other errors are those of Put. It touches records only, never locks or sessions.
func (s *Shard) DeletePrefix(ctx context.Context, prefix string) (deleted int64, r Revision, err error) {
	if len(prefix) > fsm.MaxKey {
		return 0, 0, fmt.Errorf("delete prefix: %w: the prefix has %d bytes, at most %d are allowed", ErrTooLarge, len(prefix), fsm.MaxKey)
	}
	for {
		res, err := s.write(ctx, "delete prefix", &fsmpb.Op{Kind: &fsmpb.Op_DeletePrefix{DeletePrefix: &fsmpb.DeletePrefix{Prefix: []byte(prefix)}}})
		switch {
		case err != nil && deleted > 0:
			return deleted, r, fmt.Errorf("delete prefix %q: %w: %d records are removed: %w", prefix, ErrUnknown, deleted, err)
		case err != nil:
			return 0, 0, err
		}
		deleted += int64(res.GetDeleted())
		if res.GetDeleted() > 0 {
			r = Revision(res.GetRevision())
		}
		if !res.GetMore() {
			return deleted, r, nil
		}
	}
}
