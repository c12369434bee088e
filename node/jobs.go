package node

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// jobsPage is how many jobs an owner lists in one answer, which it ends at pageBytes of results.
const jobsPage = 256

// A JobState is how a job stands.
type JobState uint8

// States of a job.
const (
	JobWaiting JobState = iota // it was begun, is not completed, and nobody runs it
	JobRunning
	JobDone
)

// String is the state's name.
func (s JobState) String() string {
	return [...]string{"waiting", "running", "done"}[min(s, JobDone)]
}

// MarshalText makes a JobState its name in JSON.
func (s JobState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// JobInfo is the record of a job, and who runs it. A job that nobody has begun has no record.
type JobInfo struct {
	Name      string
	State     JobState
	Attempt   int           // runs that were begun
	Token     Token         // of the run that runs or completed, 0 while none
	Holder    Member        // who runs it, zero while nobody does
	Waiters   int           // calls of RunOnce that wait for it
	Result    []byte        // of the completed run; the caller's own
	Completed time.Time     // by the wall clock of the node that ran it, for people; zero: not completed
	Keep      time.Duration // that the record is wanted after it, 0: for ever
}

// Jobs yields the jobs of the shard whose names begin with prefix, in the order of names, completed or not. Each page, of up to 256 jobs and about 1 MiB of
// results, is of one instant, under a good lease. Jobs that were begun and never completed stay listed until they are, or until ForgetJob. An error
// ends it and comes last: ErrNoQuorum, ErrClosed. Each page takes up to Config.RequestTimeout if ctx has no deadline.
func (s *Shard) Jobs(ctx context.Context, prefix string) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) {
		var after []byte
		for {
			page, err := s.jobs(ctx, prefix, after)
			if err != nil {
				yield(JobInfo{}, err)
				return
			}
			for _, j := range page.GetJobs() {
				if !yield(s.n.jobInfo(j), nil) {
					return
				}
				after = j.GetJob().GetName()
			}
			if !page.GetMore() {
				return
			}
		}
	}
}

func (s *Shard) jobs(ctx context.Context, prefix string, after []byte) (*wire.JobsPage, error) {
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	reply, _, err := g.ask(ctx, "list jobs", &wire.OwnerRequest{Ask: &wire.OwnerRequest_ListJobs{ListJobs: &wire.ListJobs{Prefix: []byte(prefix), After: after}}})
	return reply.GetJobs(), err
}

// jobs is one page of the records of jobs; nil: the state cannot be read.
func (o *ownership) jobs(q *wire.ListJobs) *wire.JobsPage {
	found, more, err := o.l.machine.Load().Jobs(q.GetPrefix(), q.GetAfter(), jobsPage, pageBytes)
	if err != nil {
		return nil
	}
	page := &wire.JobsPage{More: more}
	for _, j := range found {
		info := &wire.JobInfo{Node: j.Holder.Node, Token: uint64(j.Holder.Token), Waiters: uint32(j.Waiters), Job: &fsmpb.Job{
			Name: []byte(j.Name), Attempt: j.Attempt, Done: uint64(j.Done), Token: uint64(j.Token), Result: j.Result, Keep: int64(j.Keep),
		}}
		if j.Done != 0 {
			info.Job.At = j.At.UnixNano()
		}
		page.Jobs = append(page.Jobs, info)
	}
	return page
}

func (n *Node) jobInfo(x *wire.JobInfo) JobInfo {
	j := x.GetJob()
	info := JobInfo{Name: string(j.GetName()), Attempt: int(j.GetAttempt()), Waiters: int(x.GetWaiters()), Holder: n.memberOf(x.GetNode())}
	switch {
	case j.GetDone() != 0:
		info.State, info.Token, info.Result = JobDone, Token(j.GetToken()), j.GetResult()
		info.Completed, info.Keep = time.Unix(0, j.GetAt()), time.Duration(j.GetKeep())
	case x.GetToken() != 0:
		info.State, info.Token = JobRunning, Token(x.GetToken())
	}
	return info
}

// ForgetJob removes the record of a job that nobody runs or waits for, completed or not: whoever asks for it next runs it anew, from attempt 1 but
// under a higher token. ErrNotFound: there is no record; ErrHeld: somebody runs it or waits for it. Then nothing was done. Other errors are
// those of Put.
func (s *Shard) ForgetJob(ctx context.Context, name string) error {
	if err := checkName("forget job", name); err != nil {
		return err
	}
	res, err := s.write(ctx, "forget job", &fsmpb.Op{Kind: &fsmpb.Op_JobForget{JobForget: &fsmpb.JobForget{Name: []byte(name)}}})
	switch {
	case err != nil:
		return err
	case res.GetStatus() == fsmpb.Result_NOT_FOUND:
		return fmt.Errorf("forget job %q: %w", name, ErrNotFound)
	case res.GetStatus() == fsmpb.Result_HELD:
		return fmt.Errorf("forget job %q: %w", name, ErrHeld)
	}
	return nil
}
