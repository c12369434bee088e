package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// maxResult is the longest result of a job in bytes.
const maxResult = fsm.MaxLockValue

// JobOptions are for RunOnce; nil is the default.
type JobOptions struct {
	// Wait bounds the time that RunOnce waits while another runs the job; then it fails with ErrHeld. Zero: only ctx bounds it.
	Wait time.Duration
	// TTL is that of LockOptions: how long the run outlives a process that dies before another may run the job.
	TTL time.Duration
}

// A Run is one attempt to run a job. It is safe for concurrent use, and has the methods of Hold.
type Run struct{ *grant }

var _ Hold = (*Run)(nil)

// Attempt counts the runs of the job that were begun, this one included, from 1. A number above 1 says that a former one did not complete.
func (r *Run) Attempt() int {
	if r.grant == nil {
		return 0
	}
	return int(r.attempt)
}

// RunOnce runs fn unless the job, 1 to 1024 bytes, has a completed run on record anywhere; then it returns that run's result and ErrAlreadyDone. While
// another runs the job it waits. When fn returns nil its result, at most 64 KiB, is recorded and the run released in one step, guarded by the run's
// token. The promise is one recorded completion: fn may have run before in part, by a process that died, so what it does
// outside should carry the token. fn's error is returned as it is, and the job stays to be done. ErrLost: the run was lost before it was recorded; ErrUnknown:
// it may be recorded. Other errors are those of Lock.
func (s *Shard) RunOnce(ctx context.Context, job string, o *JobOptions, fn func(context.Context, *Run) ([]byte, error)) ([]byte, error) {
	if fn == nil {
		return nil, fmt.Errorf("run once: %w: fn is nil", ErrInvalid)
	}
	if o == nil {
		o = &JobOptions{}
	}
	g, done, err := s.acquire(ctx, &request{what: "run once", op: &fsmpb.Lock{Kind: fsmpb.Lock_JOB, Name: []byte(job)}, ttl: o.TTL, wait: o.Wait})
	switch {
	case err != nil:
		return nil, err
	case done.GetStatus() == fsmpb.Result_DONE:
		return done.GetJob().GetResult(), fmt.Errorf("run once %q: %w", job, ErrAlreadyDone)
	}
	r := &Run{g}
	result, err := s.run(ctx, r, fn)
	if err != nil {
		return nil, errors.Join(err, notHeld(r.unlock(context.WithoutCancel(ctx))))
	}
	return result, r.complete(ctx, result)
}

// run calls fn. If it panics, which is the user's, the run is released first: nothing would end it else but the session.
func (s *Shard) run(ctx context.Context, r *Run, fn func(context.Context, *Run) ([]byte, error)) (result []byte, err error) {
	finished := false
	defer func() {
		if !finished {
			_ = r.unlock(context.WithoutCancel(ctx))
		}
	}()
	result, err = fn(r.Context(ctx), r)
	finished = true
	if err == nil && len(result) > maxResult {
		err = fmt.Errorf("run once %q: %w: the result has %d bytes, at most %d are allowed", r.name, ErrTooLarge, len(result), maxResult)
	}
	return result, err
}

// notHeld drops the errors that say that there was nothing to release.
func notHeld(err error) error {
	if errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}

// complete records the result and releases the run.
func (r *Run) complete(ctx context.Context, result []byte) error {
	op := &fsmpb.Op{Kind: &fsmpb.Op_JobDone{JobDone: &fsmpb.JobDone{Name: []byte(r.name), Token: uint64(r.hold.token), Result: bytes.Clone(result), At: time.Now().UnixNano()}}}
	res, err := r.release(ctx, op)
	if errors.Is(err, ErrNotHeld) {
		err = ErrLost
	}
	if err == nil {
		_, err = checked("run once", res, nil)
	}
	if err != nil {
		return fmt.Errorf("run once %q: record the result: %w", r.name, err)
	}
	return nil
}
