package fsm

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// job is the record of a run-once job, without its result, which stays in the storage. It begins with the first grant
// and outlives the grants, for the number of attempts and the completion.
type job struct {
	name    string
	attempt uint64 // grants so far
	done    Token  // number of the completion, from the tokens' counter; zero: not completed
	token   Token  // of the grant that completed it
	keep    time.Duration
	at      int64         // nanoseconds of a wall clock
	born    time.Duration // the shard's passed time at the completion
	forgot  bool
}

func (j *job) isGone() bool { return j.forgot }

// count counts a grant of a job and returns its number.
func (t *txn) count(name string) uint64 {
	j := t.st.jobs[name]
	if j == nil {
		j = &job{name: name}
		t.st.jobs[name] = j
	}
	j.attempt++
	t.keepJob(j, nil)
	return j.attempt
}

// uncount takes back the count of a grant that was cancelled: its operation was given up before anything ran.
func (t *txn) uncount(name string) {
	j := t.st.jobs[name]
	if j.attempt--; j.attempt > 0 {
		t.keepJob(j, nil)
		return
	}
	t.forget(j)
}

// jobDone records the completion of a job by its holder, ends the grant and answers all who wait. The same again is
// recognised by the token.
func (t *txn) jobDone(x *fsmpb.JobDone) *fsmpb.Result {
	j := t.st.jobs[string(x.Name)]
	c := t.st.holder(fsmpb.Lock_JOB, x.Name, x.Token)
	switch {
	case c == nil && j != nil && j.done != 0 && j.token == Token(x.Token):
		return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(j.done)}
	case c == nil:
		return status(fsmpb.Result_NOT_HELD)
	}
	j.done, j.token, j.keep, j.at, j.born = t.mint(), c.token, time.Duration(x.Keep), x.At, t.st.passed
	if j.keep > 0 {
		t.st.kept.add(j)
	}
	t.jobs[j.name] = x.Result
	t.keepJob(j, x.Result)
	l := c.locks[0]
	t.tell(l.event(JobCompleted, c, 0))
	res := trim(&fsmpb.Result{Status: fsmpb.Result_DONE, Job: j.message(x.Result)})
	for _, w := range l.waiters {
		t.leave(w, 0)
		w.session.unrefer(w)
		t.update(w.session, w.seq, res)
		t.tell(l.event(Answered, w, 0))
	}
	l.waiters = nil
	t.drop(c, Unlocked)
	return &fsmpb.Result{Status: fsmpb.Result_OK, Token: uint64(j.done)}
}

// jobForget removes the record of a job that nobody runs or waits for.
func (t *txn) jobForget(x *fsmpb.JobForget) *fsmpb.Result {
	j := t.st.jobs[string(x.Name)]
	if j == nil || x.Done != 0 && j.done != Token(x.Done) {
		return status(fsmpb.Result_NOT_FOUND)
	}
	if l := t.st.locks[lockKey{fsmpb.Lock_JOB, j.name}]; l != nil && len(l.holders)+len(l.waiters) > 0 {
		return status(fsmpb.Result_HELD)
	}
	t.forget(j)
	return status(fsmpb.Result_OK)
}

func (t *txn) forget(j *job) {
	j.forgot = true
	delete(t.st.jobs, j.name)
	delete(t.jobs, j.name)
	if j.keep > 0 {
		t.st.kept.left(1)
	}
	t.unset(append(t.sp.start(t.key[:0], kindJob), j.name...))
}

// passTime counts the time that owners measure, each time once. It saturates.
func (t *txn) passTime(x *fsmpb.PassTime) *fsmpb.Result {
	if time.Duration(x.After) != t.st.passed {
		return status(fsmpb.Result_CONFLICT)
	}
	t.st.passed += min(time.Duration(x.Time), math.MaxInt64-t.st.passed)
	t.val = appendPassed(t.val[:0], t.st.passed)
	t.set(t.sp.start(t.key[:0], kindPassed))
	return status(fsmpb.Result_OK)
}

// age is the time since the job's completion, at least. What is passed is known in steps, and the completion may have come at the
// end of one.
func (st *state) age(j *job) time.Duration { return max(st.passed-j.born-MaxPass, 0) }

// doneBefore is the result of asking for a completed job.
func (t *txn) doneBefore(j *job) *fsmpb.Result {
	result, ok := t.jobs[j.name]
	if !ok {
		_, stored, err := getJob(t.m.db, t.sp, []byte(j.name))
		if err != nil {
			return t.broken(err)
		}
		result, t.jobs[j.name] = stored, stored
	}
	return &fsmpb.Result{Status: fsmpb.Result_DONE, Job: j.message(result)}
}

// keepJob writes a job.
func (t *txn) keepJob(j *job, result []byte) {
	t.val = appendJob(t.val[:0], j, result)
	t.set(append(t.sp.start(t.key[:0], kindJob), j.name...))
}

// prefetchJobs reads the results of the jobs that commands are about to ask for, for the same reason as prefetch. What is
// not there, or is not completed, is left out.
func (m *Machine) prefetchJobs(sp space, cmds []command) map[string][]byte {
	results := map[string][]byte{}
	for _, c := range cmds {
		for _, op := range c.entry.GetBatch().GetOps() {
			k := op.GetLock()
			if k == nil || k.Kind != fsmpb.Lock_JOB {
				continue
			}
			if j, result, err := getJob(m.db, sp, k.Name); err == nil && j.done != 0 {
				results[j.name] = result
			}
		}
	}
	return results
}

func getJob(r pebble.Reader, sp space, name []byte) (*job, []byte, error) {
	if len(name) == 0 || len(name) > MaxName {
		return nil, nil, ErrNotFound
	}
	v, closer, err := r.Get(append(sp.start(nil, kindJob), name...))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil, ErrNotFound
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read job: %w", err)
	}
	j, result, err := decodeJob(name, v)
	return j, result, errors.Join(err, closer.Close())
}

func (j *job) message(result []byte) *fsmpb.Job {
	return &fsmpb.Job{Name: []byte(j.name), Attempt: j.attempt, Done: uint64(j.done), Token: uint64(j.token), Result: result,
		Keep: int64(j.keep), At: j.at}
}
