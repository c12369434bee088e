package node

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

const (
	passTick    = fsm.MaxPass / 2 // how often an owner adds to the shard's passed time, while there are records that go by it
	forgetBatch = 256             // records that an owner forgets at a time
	forgetAgain = time.Second     // after one that came to nothing
)

// keeps are the completed jobs whose records are wanted for a time only, and when an owner may forget them. Their age is what
// this owner has measured since it heard of the completion, or what it found measured, by all owners before, and has measured since: never a
// wall clock, which may be stepped. So a record is kept longer than asked for, by the time without an owner and up to two minutes
// when owners change, and never shorter.
type keeps struct {
	o    *ownership
	wake chan struct{} // has an element after something became due before all else

	mu  sync.Mutex // guards due
	due dueHeap
}

// dueRecord is a completion that may be forgotten at a time since boot.
type dueRecord struct {
	at   time.Duration
	name string
	done fsm.Token
}

func (k *keeps) init(o *ownership) { k.o, k.wake = o, make(chan struct{}, 1) }

// completed hears of a completion. It is called from an apply worker.
func (k *keeps) completed(m *fsm.Machine, name []byte) {
	if j, ok := m.KeptJob(name); ok {
		j.Age = 0
		k.add(j, k.o.l.now())
	}
}

func (k *keeps) add(j fsm.KeptJob, now time.Duration) {
	left := max(owner.Stretch(min(j.Keep, maxKeep))-j.Age, 0)
	k.push(dueRecord{at: now + left, name: j.Name, done: j.Done})
}

func (k *keeps) push(d dueRecord) {
	k.mu.Lock()
	defer k.mu.Unlock()
	heap.Push(&k.due, d)
	if k.due[0] == d {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// loop forgets records in time, until ctx ends. While there are none it sleeps.
func (k *keeps) loop(ctx context.Context) {
	now := k.o.l.now()
	for _, j := range k.o.l.machine.Load().KeptJobs() {
		k.add(j, now)
	}
	measured, idle := now, true // up to where the passed time is in the log; whether nothing goes by it
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		now := k.o.l.now()
		if !k.any() {
			idle = true
			continue
		}
		if idle {
			measured, idle = now, false
		}
		if now-measured >= passTick {
			k.pass(ctx, now-measured)
			measured = now
		}
		k.forget(ctx, now)
		timer.Reset(k.next(k.o.l.now(), measured+passTick))
	}
}

func (k *keeps) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.due) > 0
}

// next is how long the loop may sleep.
func (k *keeps) next(now, pass time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.due) > 0 {
		pass = min(pass, k.due[0].at)
	}
	return max(pass-now, 0)
}

// pass adds to the shard's passed time. What comes of it does not matter: time that was not counted makes records be kept longer.
func (k *keeps) pass(ctx context.Context, d time.Duration) {
	after := k.o.l.machine.Load().Passed()
	op := &fsmpb.PassTime{Time: int64(min(d, fsm.MaxPass)), After: int64(after)}
	_, _ = k.o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_PassTime{PassTime: op}})
}

// forget forgets what is due, in batches, each in one entry or a few.
func (k *keeps) forget(ctx context.Context, now time.Duration) {
	for ctx.Err() == nil {
		batch := k.take(now)
		if len(batch) == 0 {
			return
		}
		ops := make([]queuedOp, len(batch))
		for i, d := range batch {
			ops[i] = newQueued(&fsmpb.Op{Kind: &fsmpb.Op_JobForget{JobForget: &fsmpb.JobForget{Name: []byte(d.name), Done: uint64(d.done)}}})
			k.o.queue.push(ops[i]) // if it is closed the ownership has ended, and ctx with it
		}
		for i, op := range ops {
			res, err := op.wait(ctx)
			if err != nil {
				k.push(dueRecord{at: now + forgetAgain, name: batch[i].name, done: batch[i].done})
			} else if res.GetStatus() == fsmpb.Result_OK {
				k.o.l.g.n.stats.jobsForgotten.Add(1)
			}
		}
	}
}

// take removes up to a batch of what is due and still on record.
func (k *keeps) take(now time.Duration) []dueRecord {
	m := k.o.l.machine.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	var batch []dueRecord
	for len(k.due) > 0 && k.due[0].at <= now && len(batch) < forgetBatch {
		d := heap.Pop(&k.due).(dueRecord)
		if j, ok := m.KeptJob([]byte(d.name)); ok && j.Done == d.done {
			batch = append(batch, d)
		}
	}
	return batch
}

// dueHeap has what is due first on top.
type dueHeap []dueRecord

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, k int) bool { return h[i].at < h[k].at }
func (h dueHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

// Push is for package heap.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(dueRecord)) }

// Pop is for package heap.
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = dueRecord{}
	*h = old[:len(old)-1]
	return last
}
