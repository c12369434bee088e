package fsm

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A Job is the record of a run-once job.
type Job struct {
	Name    string
	Attempt uint64        // grants so far
	Done    Token         // rises in the order of completions, zero: not completed
	Token   Token         // of the grant that completed it
	Result  []byte        // as recorded at completion
	Keep    time.Duration // that the record was wanted then, zero: no limit
	At      time.Time     // of the completion by the clock of who proposed it, for people alone
}

// A JobState is a job as it stands: its record, and who runs it and waits for it.
type JobState struct {
	Job
	Holder  Claimant // zero: nobody runs it
	Waiters int
}

// A KeptJob is a completed job whose record is wanted for a time only.
type KeptJob struct {
	Name string
	Done Token
	Keep time.Duration
	Age  time.Duration // since its completion, at least: time without an owner, and up to two MaxPass, do not count
}

// Job returns the record of a job, which the caller owns. It reads the storage without waiting for Apply and sees whole
// Apply calls only. Errors: ErrNotFound, ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Job(name []byte) (Job, error) {
	sp, err := m.home.enter()
	if err != nil {
		return Job{}, err
	}
	defer m.home.leave()
	j, result, err := getJob(m.db, sp, name)
	if err != nil {
		return Job{}, err
	}
	return j.view(result), nil
}

// Jobs returns jobs, completed or not, whose names begin with prefix and are greater than after, in the order of names and of one
// instant. It ends after limit jobs, or once their results have size bytes; zero or less: no such end. More says that there are
// others. Apply waits for it. Errors: ErrClosed, ErrCorrupt, or the storage's.
func (m *Machine) Jobs(prefix, after []byte, limit, size int) (jobs []JobState, more bool, err error) {
	sp, err := m.home.enter()
	if err != nil {
		return nil, false, err
	}
	defer m.home.leave()
	m.mu.RLock()
	defer m.mu.RUnlock()
	low := append(sp.start(nil, kindJob), prefix...)
	high := successor(low)
	if string(after) >= string(prefix) && len(after) > 0 {
		low = append(append(sp.start(nil, kindJob), after...), 0)
	}
	it, err := m.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return nil, false, err
	}
	sum := 0
	for ok := it.First(); ok; ok = it.Next() {
		if limit > 0 && len(jobs) == limit || size > 0 && sum >= size {
			return jobs, true, it.Close()
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, false, errors.Join(err, it.Close())
		}
		j, result, err := decodeJob(it.Key()[spaceLen+1:], v)
		if err != nil {
			return nil, false, errors.Join(err, it.Close())
		}
		jobs, sum = append(jobs, m.st.jobState(j, result)), sum+len(result)
	}
	return jobs, false, it.Close()
}

func (st *state) jobState(j *job, result []byte) JobState {
	x := JobState{Job: j.view(result)}
	if l := st.locks[lockKey{fsmpb.Lock_JOB, j.name}]; l != nil {
		if len(l.holders) > 0 {
			x.Holder = l.holders[0].view()
		}
		x.Waiters = len(l.waiters)
	}
	return x
}

// Passed is the time for which the shard has had owners, at least: what the PassTimes in its log add up to.
func (m *Machine) Passed() time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.passed
}

// KeptJobs returns the completed jobs that have a Keep, those completed first before others. It looks at no others.
func (m *Machine) KeptJobs() []KeptJob {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var kept []KeptJob
	for j := range m.st.kept.all {
		kept = append(kept, m.st.keptView(j))
	}
	return kept
}

// KeptJob returns one of KeptJobs; false: there is none of that name.
func (m *Machine) KeptJob(name []byte) (KeptJob, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	j := m.st.jobs[string(name)]
	if j == nil || j.keep == 0 {
		return KeptJob{}, false
	}
	return m.st.keptView(j), true
}

func (st *state) keptView(j *job) KeptJob {
	return KeptJob{Name: j.name, Done: j.done, Keep: j.keep, Age: st.age(j)}
}

func (j *job) view(result []byte) Job {
	v := Job{Name: j.name, Attempt: j.attempt, Done: j.done, Token: j.token, Result: result, Keep: j.keep}
	if j.done != 0 {
		v.At = time.Unix(0, j.at)
	}
	return v
}
