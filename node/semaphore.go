package node

import (
	"context"
	"fmt"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// maxPermits is the largest number of permits of a semaphore.
const maxPermits = 1 << 20

// A Permit is one of a semaphore's permits. Make it with Shard.Semaphore and do not copy it. It is safe for concurrent use, and has the
// methods of Hold.
type Permit struct{ *grant }

var _ Hold = (*Permit)(nil)

// Semaphore acquires one of the permits of the semaphore name, at most so many of which are held at once, and waits in a fair queue for
// it. All who use it must give the same number, 1 to 1,048,576: ErrConflict names the present one, or says that the name is a lock. SetPermits
// changes it. Other errors are those of Lock.
func (s *Shard) Semaphore(ctx context.Context, name string, permits int, o *LockOptions) (*Permit, error) {
	if err := checkName("semaphore", name); err != nil {
		return nil, err
	}
	if err := checkPermits(permits); err != nil {
		return nil, fmt.Errorf("semaphore %q: %w", name, err)
	}
	r := &request{what: "semaphore", op: &fsmpb.Lock{Name: []byte(name), Mode: fsmpb.Lock_PERMIT, Permits: uint32(permits)}}
	o.apply(r)
	g, _, err := s.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Permit{g}, nil
}

func checkPermits(n int) error {
	if n < 1 || n > maxPermits {
		return fmt.Errorf("%w: %d permits: give 1 to %d", ErrInvalid, n, maxPermits)
	}
	return nil
}

// SetPermits changes the number of permits of a semaphore that somebody holds or waits for. More are granted at once if it grew; if it shrank,
// what is held stays held. ErrNotHeld: nobody uses it, so there is nothing to change. Other errors are those of Put.
func (s *Shard) SetPermits(ctx context.Context, name string, permits int) error {
	if err := checkName("set permits", name); err != nil {
		return err
	}
	if err := checkPermits(permits); err != nil {
		return fmt.Errorf("set permits of %q: %w", name, err)
	}
	res, err := s.write(ctx, "set permits", &fsmpb.Op{Kind: &fsmpb.Op_SetPermits{SetPermits: &fsmpb.SetPermits{Name: []byte(name), Permits: uint32(permits)}}})
	switch {
	case err != nil:
		return err
	case res.GetStatus() == fsmpb.Result_NOT_HELD:
		return fmt.Errorf("set permits of %q: %w", name, ErrNotHeld)
	case res.GetStatus() == fsmpb.Result_MISMATCH:
		return fmt.Errorf("set permits of %q: %w: the name is used as a lock", name, ErrConflict)
	}
	return nil
}

// Release gives the permit back. It behaves as Lock.Unlock does.
func (p *Permit) Release(ctx context.Context) error {
	if err := p.unlock(ctx); err != nil {
		return fmt.Errorf("release permit of %q: %w", p.title(), err)
	}
	return nil
}
