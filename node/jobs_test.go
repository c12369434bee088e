package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// result makes a job's function that completes with that result.
func result(r string) func(context.Context, *node.Run) ([]byte, error) {
	return func(context.Context, *node.Run) ([]byte, error) { return []byte(r), nil }
}

// mustRun runs a job that must not have been completed before.
func mustRun(t *testing.T, s *node.Shard, job string, o *node.JobOptions) {
	t.Helper()
	if got, err := s.RunOnce(within(t, time.Minute), job, o, result("of "+job)); err != nil || string(got) != "of "+job {
		t.Fatalf("run %q: got %q, %v", job, got, err)
	}
}

// jobsOf are the listed jobs, by name.
func jobsOf(t *testing.T, s *node.Shard, prefix string) map[string]node.JobInfo {
	t.Helper()
	jobs := map[string]node.JobInfo{}
	last := ""
	for j, err := range s.Jobs(within(t, time.Minute), prefix) {
		if err != nil {
			t.Fatalf("list jobs: %v", err)
		}
		if j.Name <= last {
			t.Errorf("%q is listed after %q", j.Name, last)
		}
		last = j.Name
		jobs[j.Name] = j
	}
	return jobs
}

// Jobs are listed on every node with how they stand, and forgotten only when nobody runs them or waits for them.
func TestShard_Jobs(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(0).ShardAt(1)
		began := time.Now()
		mustRun(t, s, "a/done \xff", &node.JobOptions{Keep: time.Hour})
		mustRun(t, s, "b", nil)
		if _, err := s.RunOnce(t.Context(), "a/waits", nil, func(context.Context, *node.Run) ([]byte, error) { return nil, errors.New("planted") }); err == nil {
			t.Error("a run that failed was recorded")
		}
		running, stop := make(chan node.Token, 1), make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range 2 {
			wg.Go(func() {
				_, _ = c.Node(1+i).ShardAt(1).RunOnce(t.Context(), "a/runs", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
					running <- r.Token()
					<-stop
					return nil, nil
				})
			})
		}
		token := <-running
		time.Sleep(time.Second)
		for i := range 3 {
			s := c.Node(i).ShardAt(1)
			got := jobsOf(t, s, "a/")
			done, runs, waits := got["a/done \xff"], got["a/runs"], got["a/waits"]
			if done.Completed.Before(began) || done.Completed.After(time.Now()) || done.Token == 0 {
				t.Errorf("completed: got %+v", done)
			}
			if runs.Holder.ID != c.Node(1).ID() && runs.Holder.ID != c.Node(2).ID() {
				t.Errorf("holder: got %+v, want one of the runners", runs.Holder)
			}
			done.Completed, done.Token, runs.Holder = time.Time{}, 0, node.Member{}
			want := map[string]node.JobInfo{
				"a/done \xff": {Name: "a/done \xff", State: node.JobDone, Attempt: 1, Result: []byte("of a/done \xff"), Keep: time.Hour},
				"a/runs":      {Name: "a/runs", State: node.JobRunning, Attempt: 1, Token: token, Waiters: 1},
				"a/waits":     {Name: "a/waits", State: node.JobWaiting, Attempt: 1},
			}
			if diff := cmp.Diff(want, map[string]node.JobInfo{"a/done \xff": done, "a/runs": runs, "a/waits": waits}); diff != "" || len(got) != 3 {
				t.Errorf("node %d: %d jobs (-want +got):\n%s", i, len(got), diff)
			}
			wantErr(t, "forget a job that runs", s.ForgetJob(t.Context(), "a/runs"), node.ErrHeld)
			wantErr(t, "forget nothing", s.ForgetJob(t.Context(), "c"), node.ErrNotFound)
		}
		for _, name := range []string{"a/done \xff", "a/waits", "b"} {
			if err := s.ForgetJob(t.Context(), name); err != nil {
				t.Errorf("forget %q: %v", name, err)
			}
		}
		if got := jobsOf(t, s, ""); len(got) != 1 {
			t.Errorf("after all but one were forgotten: got %v", got)
		}
		mustRun(t, s, "b", nil)
		close(stop)
	})
}

// A listing longer than one answer in number or in bytes has every job once, in order.
func TestShard_Jobs_Pages(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		long := strings.Repeat("r", 64<<10)
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				r := "short"
				if i < 140 { // more than one message may have
					r = long
				}
				if _, err := s.RunOnce(t.Context(), fmt.Sprintf("%03d", i), nil, result(r)); err != nil {
					t.Errorf("run %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		got := jobsOf(t, s, "")
		if len(got) != 300 || string(got["007"].Result) != long || string(got["299"].Result) != "short" {
			t.Errorf("got %d jobs, want 300 with their results", len(got))
		}
	})
}

// Everybody who asks for a completed job, before or after, gets its whole result, up to 64 KiB. A longer one is refused and recorded by nobody.
func TestShard_RunOnce_ResultAtTheLimit(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		long := bytes.Repeat([]byte("r"), 64<<10)
		_, err := c.Node(0).ShardAt(1).RunOnce(t.Context(), "job", nil, result(string(long)+"r"))
		wantErr(t, "a result that is too long", err, node.ErrTooLarge)
		var mu sync.Mutex
		runs := 0
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				got, err := c.Node(i%3).ShardAt(1).RunOnce(t.Context(), "job", nil, func(_ context.Context, r *node.Run) ([]byte, error) {
					mu.Lock()
					defer mu.Unlock()
					if runs++; r.Attempt() != 2 {
						t.Errorf("attempt: got %d, want 2", r.Attempt())
					}
					time.Sleep(time.Second)
					return long, nil
				})
				if err != nil && !errors.Is(err, node.ErrAlreadyDone) || !bytes.Equal(got, long) {
					t.Errorf("caller %d: got %d bytes, %v; want the whole result", i, len(got), err)
				}
			})
		}
		wg.Wait()
		if runs != 1 {
			t.Errorf("runs: got %d, want 1", runs)
		}
	})
}

// A node that dies after fn has returned and before that is recorded leaves the job to be done: the next run has a higher attempt
// and token, and its result is the recorded one (case 45's kind).
func TestShard_RunOnce_KilledBeforeTheRecord(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for round, killed := range []int{c.AwaitOwner(1), others(c, c.AwaitOwner(1))[0]} {
			job := fmt.Sprint("job ", round)
			var first node.Token
			_, err := c.Node(killed).ShardAt(1).RunOnce(t.Context(), job, nil, func(_ context.Context, r *node.Run) ([]byte, error) {
				first = r.Token()
				c.Kill(killed)
				return []byte("first"), nil
			})
			if err == nil {
				t.Fatal("a run that died before its record was recorded")
			}
			got, err := c.Node(others(c, killed)[0]).ShardAt(1).RunOnce(within(t, time.Minute), job, nil, func(_ context.Context, r *node.Run) ([]byte, error) {
				if r.Attempt() != 2 || r.Token() <= first {
					t.Errorf("next run: got attempt %d under %d, want 2 above %d", r.Attempt(), r.Token(), first)
				}
				return []byte("second"), nil
			})
			if err != nil || string(got) != "second" {
				t.Errorf("next run: got %q, %v", got, err)
			}
			c.Restart(killed)
			c.AwaitReady()
			got, err = c.Node(killed).ShardAt(1).RunOnce(within(t, time.Minute), job, nil, result("third"))
			if wantErr(t, "the node that died", err, node.ErrAlreadyDone); string(got) != "second" {
				t.Errorf("the node that died: got %q, want second", got)
			}
		}
	})
}

// A run that fails in whatever way is given back at once, and the job is run again, long before a session could time out; a
// function that has done its work is recorded, also if its caller's time ended meanwhile.
func TestShard_RunOnce_Failures(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(10 * time.Minute)}, func(t *testing.T, c *nodetest.Cluster) {
		planted := errors.New("planted")
		s, other := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		short := func() context.Context { return within(t, time.Second) }
		outlast := func(err error) func(context.Context, *node.Run) ([]byte, error) {
			return func(ctx context.Context, _ *node.Run) ([]byte, error) {
				<-ctx.Done()
				return []byte("late"), err
			}
		}
		for name, run := range map[string]func() error{
			"error": func() error {
				_, err := s.RunOnce(t.Context(), "error", nil, func(context.Context, *node.Run) ([]byte, error) { return nil, planted })
				return err
			},
			"error with the ctx": func() error {
				_, err := s.RunOnce(short(), "error with the ctx", nil, outlast(planted))
				return err
			},
			"panic": func() (err error) {
				defer func() { err = recover().(error) }()
				_, _ = s.RunOnce(t.Context(), "panic", nil, func(context.Context, *node.Run) ([]byte, error) { panic(planted) })
				return nil
			},
			"own session": func() error {
				_, err := s.RunOnce(t.Context(), "own session", &node.JobOptions{TTL: time.Hour}, func(context.Context, *node.Run) ([]byte, error) { return nil, planted })
				return err
			},
		} {
			if err := run(); err != planted { // the very error
				t.Errorf("%s: got %v, want fn's error", name, err)
			}
			if _, err := other.RunOnce(within(t, 2*time.Second), name, nil, func(_ context.Context, r *node.Run) ([]byte, error) {
				if r.Attempt() != 2 {
					t.Errorf("%s: got attempt %d, want 2", name, r.Attempt())
				}
				return nil, nil
			}); err != nil {
				t.Errorf("%s: run again: %v", name, err)
			}
		}
		if _, err := s.RunOnce(short(), "done", nil, outlast(nil)); err != nil {
			t.Errorf("done after its caller's time: %v", err)
		}
		got, err := other.RunOnce(short(), "done", nil, result("again"))
		if wantErr(t, "done after its caller's time", err, node.ErrAlreadyDone); string(got) != "late" {
			t.Errorf("done after its caller's time: got %q, want late", got)
		}
	})
}

// A run or leadership whose end could not be recorded, because no owner was reached for longer than a call waits, does not stay taken
// by its living node for ever (case 45's kind: nothing stops for good).
func TestGrant_GivenBackAfterPartition(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(10 * time.Minute)}, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		cut, other := c.Node(i).ShardAt(1), c.Node(others(c, i)[0]).ShardAt(1)
		_, err := cut.RunOnce(t.Context(), "job", nil, func(context.Context, *node.Run) ([]byte, error) {
			c.Isolate(i)
			return nil, nil
		})
		if !errors.Is(err, node.ErrNoQuorum) && !errors.Is(err, node.ErrUnknown) {
			t.Errorf("record without an owner: got %v, want ErrNoQuorum or ErrUnknown", err)
		}
		c.Heal()
		if _, err := other.RunOnce(within(t, 10*time.Second), "job", nil, result("r")); err != nil && !errors.Is(err, node.ErrAlreadyDone) {
			t.Errorf("job after the partition: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			err := cut.Lead(ctx, "leads", func(context.Context, *node.Leadership) error {
				c.Isolate(i)
				cancel()
				return nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("lead: %v", err)
			}
		})
		wg.Wait()
		time.Sleep(20 * time.Second)
		c.Heal()
		l, err := other.Campaign(within(t, 10*time.Second), "leads", nil)
		if err != nil {
			t.Fatalf("campaign after the partition: %v", err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Through a guarded view a job is run, recorded and forgotten only while the guard is current, else ErrFenced, and the job stays to be done.
func TestShard_RunOnce_Guarded(t *testing.T) {
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(10 * time.Minute)}, func(t *testing.T, c *nodetest.Cluster) {
		s, other := c.Node(0).ShardAt(1), c.Node(1).ShardAt(1)
		lock := mustLock(t, s, "guard")
		g := s.Guarded(lock)
		mustRun(t, g, "first", nil)
		_, err := g.RunOnce(t.Context(), "second", nil, func(context.Context, *node.Run) ([]byte, error) {
			return nil, other.ForceRelease(t.Context(), "guard", lock.Token())
		})
		wantErr(t, "record under an old guard", err, node.ErrFenced)
		if got := jobsOf(t, other, "second")["second"]; got.State != node.JobWaiting && got.State != node.JobRunning {
			t.Errorf("a fenced run was recorded: %+v", got)
		}
		if _, err := other.RunOnce(within(t, 2*time.Second), "second", nil, result("r")); err != nil {
			t.Errorf("run again: %v", err)
		}
		_, err = g.RunOnce(t.Context(), "third", nil, func(context.Context, *node.Run) ([]byte, error) {
			t.Error("it was run under an old guard")
			return nil, nil
		})
		wantErr(t, "run under an old guard", err, node.ErrFenced)
		wantErr(t, "forget under an old guard", g.ForgetJob(t.Context(), "first"), node.ErrFenced)
	})
}

// The owner forgets a record once it was kept for as long as it was wanted, and not before, over changes of owner too; one that is wanted
// for ever stays.
func TestJobOptions_Keep(t *testing.T) {
	for _, bad := range []time.Duration{-1, time.Second - 1, 3650*24*time.Hour + 1} {
		synctest.Test(t, func(t *testing.T) {
			c := nodetest.New(t, 1, nil)
			_, err := c.Node(0).ShardAt(1).RunOnce(t.Context(), "job", &node.JobOptions{Keep: bad}, result(""))
			wantErr(t, fmt.Sprint("keep of ", bad), err, node.ErrInvalid)
		})
	}
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		const keep, long = 4 * time.Second, 8 * time.Second
		owner := c.AwaitOwner(1)
		s := c.Node(others(c, owner)[0]).ShardAt(1)
		mustRun(t, s, "for ever", nil)
		began := time.Now()
		mustRun(t, s, "short", &node.JobOptions{Keep: keep})
		mustRun(t, s, "long", &node.JobOptions{Keep: long})
		lives := func(name string) bool { _, ok := jobsOf(t, s, name)[name]; return ok }
		c.Await("the short record to be forgotten", func() bool { return !lives("short") })
		if took := time.Since(began); took < keep || took > keep*11/10+time.Second {
			t.Errorf("kept for %v, want %v", took, keep)
		}
		if got := c.Node(owner).Stats().JobsForgotten; got != 1 {
			t.Errorf("forgotten by the owner: got %d, want 1", got)
		}
		c.Kill(owner)
		c.AwaitOwner(1)
		c.Await("the long record to be forgotten", func() bool { return !lives("long") })
		if took := time.Since(began); took < long || took > keep+2*long+10*time.Second {
			t.Errorf("kept over a failover for %v, want at least %v and at most that anew", took, long)
		}
		if !lives("for ever") {
			t.Error("the record that is wanted for ever was forgotten")
		}
		mustRun(t, s, "short", nil)
	})
}

// A record's time goes on over changes of owner, even if none of them lives as long as the record is wanted: else a service that is
// restarted often would keep every record for ever (case 154's kind).
func TestJobOptions_Keep_ShortLivedOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 1, nil)
		c.AwaitReady()
		const keep = 3 * time.Minute
		mustRun(t, c.Node(0).ShardAt(1), "job", &node.JobOptions{Keep: keep})
		began := time.Now()
		for len(jobsOf(t, c.Node(0).ShardAt(1), "")) > 0 {
			if time.Since(began) > 10*time.Minute {
				t.Fatal("it is kept for ever")
			}
			time.Sleep(50 * time.Second)
			c.Kill(0)
			c.Restart(0)
			c.AwaitReady()
		}
		if took := time.Since(began); took < keep {
			t.Errorf("kept for %v, want at least %v", took, keep)
		}
	})
}

// Many records are forgotten in time, and nothing of them is left (case 154).
func TestCase154_ForgottenJobsLeaveNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		n := nightly(600, 10_000)
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		next := make(chan int)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for i := range next {
					mustRun(t, s, fmt.Sprint("job ", i), &node.JobOptions{Keep: time.Second})
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		wg.Wait()
		time.Sleep(2 * time.Second)
		if left := jobsOf(t, s, ""); len(left) > 0 {
			t.Errorf("left: %d of %d records", len(left), n)
		}
		forgotten := uint64(0)
		for _, n := range c.Nodes() {
			forgotten += n.Stats().JobsForgotten
		}
		if forgotten != uint64(n) {
			t.Errorf("forgotten: got %d, want %d", forgotten, n)
		}
	})
}

// Locks are listed whatever bytes their names have, and however much their holders show.
func TestShard_Locks_AnyNamesAndValues(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		value := bytes.Repeat([]byte("v"), 64<<10)
		var wg sync.WaitGroup
		for i := range 140 { // more than one message may have
			wg.Go(func() {
				if _, err := s.Lock(t.Context(), fmt.Sprintf("\xff%03d", i), &node.LockOptions{Value: value}); err != nil {
					t.Errorf("lock %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		n := 0
		for l, err := range s.Locks(within(t, time.Minute), "\xff") {
			if want := fmt.Sprintf("\xff%03d", n); err != nil || l.Name != want || len(l.Holders) != 1 || !bytes.Equal(l.Holders[0].Value, value) {
				t.Fatalf("lock %d: got %q, %d holders, %v", n, l.Name, len(l.Holders), err)
			}
			n++
		}
		if n != 140 {
			t.Errorf("listed: got %d, want 140", n)
		}
	})
}
