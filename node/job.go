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

// Bounds of jobs.
const (
	maxResult = fsm.MaxJobResult // bytes
	minKeep   = time.Second
	maxKeep   = 3650 * 24 * time.Hour
)

// JobOptions are for RunOnce; nil is the default.
type JobOptions struct {
	// Keep is how long the record of a completed run is wanted, 1 s to 3650 days; zero: for ever, until ForgetJob. After it the record is
	// forgotten, and whoever then asks for the job runs it anew. So make it longer than anybody may come late, and keep names unique, as by a
	// date. It is counted by the clocks of the shard's owners since boot, never by a wall clock: time without an owner does not count, a
	// change of owner adds up to two minutes, and a record is never forgotten early. The run that completes decides.
	Keep time.Duration
	// Wait bounds the time that RunOnce waits while another runs the job; then it fails with ErrHeld. Zero: only ctx bounds it.
	Wait time.Duration
	// TTL is that of LockOptions: how long the run outlives a process that dies before another may run the job.
	TTL time.Duration
}

func (o *JobOptions) check() error {
	if o.Keep != 0 && (o.Keep < minKeep || o.Keep > maxKeep) {
		return fmt.Errorf("run once: %w: Keep is %v: give 0, or %v to %v", ErrInvalid, o.Keep, minKeep, maxKeep)
	}
	return nil
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

// RunOnce runs fn unless the job, 1 to 1024 bytes, has a completed run on record anywhere; then it returns that run's whole result and
// ErrAlreadyDone. While another runs the job it waits. When fn returns nil its result, at most 64 KiB, is recorded and the run released in one step,
// guarded by the run's token, also if ctx has ended meanwhile; that takes up to Config.RequestTimeout. The promise is one recorded completion: fn may
// have run before in part, by a process that died, so what it does outside should carry the token. fn's error is returned as it is, and the job stays to
// be done; fn's ctx ends with ctx or the run. ErrLost: the run was lost before it was recorded; ErrFenced: so was the view's guard; ErrUnknown: it may be
// recorded. Other errors are those of Lock.
func (s *Shard) RunOnce(ctx context.Context, job string, o *JobOptions, fn func(context.Context, *Run) ([]byte, error)) ([]byte, error) {
	if fn == nil {
		return nil, fmt.Errorf("run once: %w: fn is nil", ErrInvalid)
	}
	if o == nil {
		o = &JobOptions{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	g, done, err := s.acquire(ctx, &request{what: "run once", op: &fsmpb.Lock{Kind: fsmpb.Lock_JOB, Name: []byte(job)}, ttl: o.TTL, wait: o.Wait})
	switch {
	case err != nil:
		return nil, err
	case done.GetStatus() == fsmpb.Result_DONE:
		return done.GetJob().GetResult(), fmt.Errorf("run once %q: %w", job, ErrAlreadyDone)
	}
	r := &Run{g}
	if !s.n.leading.enter(g) {
		r.giveBack(ctx)
		return nil, fmt.Errorf("run once %q: %w", job, ErrClosed)
	}
	defer s.n.leading.leave(g)
	result, err := r.run(ctx, fn)
	if err != nil {
		return nil, err
	}
	if err := r.complete(ctx, result, o.Keep); err != nil {
		return nil, fmt.Errorf("run once %q: record the result: %w", job, err)
	}
	return result, nil
}

// run calls fn. If that fails the run is given back, also if it panics, which is the user's: nothing would end it else but the session.
func (r *Run) run(ctx context.Context, fn func(context.Context, *Run) ([]byte, error)) (result []byte, err error) {
	completed := false
	defer func() {
		if !completed {
			r.giveBack(ctx)
		}
	}()
	result, err = fn(r.Context(ctx), r)
	if err == nil && len(result) > maxResult {
		err = fmt.Errorf("run once %q: %w: the result has %d bytes, at most %d are allowed", r.name, ErrTooLarge, len(result), maxResult)
	}
	completed = err == nil
	return result, err
}

// complete records the result and releases the run, whatever has become of ctx: fn has done its work. If that fails the run is given back in
// the background, so that somebody can run it again.
func (r *Run) complete(ctx context.Context, result []byte, keep time.Duration) error {
	op := &fsmpb.Op{Guards: r.guards, Kind: &fsmpb.Op_JobDone{JobDone: &fsmpb.JobDone{
		Name: []byte(r.name), Token: uint64(r.hold.token), Result: bytes.Clone(result), Keep: int64(keep), At: max(r.s.g.n.env.Date().UnixNano(), 0),
	}}}
	_, err := r.release(context.WithoutCancel(ctx), op)
	if err == nil {
		return nil
	}
	r.giveBackLater() // if it was recorded after all, that does nothing
	if errors.Is(err, ErrNotHeld) {
		return ErrLost
	}
	return err
}
