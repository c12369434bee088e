package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

func jobOp(id Token, seq uint64, name string) *fsmpb.Op { return lockOf(fsmpb.Lock_JOB, id, seq, name) }

// A job that fails or whose runner dies is run again with a higher token and attempt; once it is completed, by the
// holder of the grant alone, everybody gets its record and nobody runs it (case 45).
func TestCase045_JobIsCompletedOnce(t *testing.T) {
	s := owned(t)
	a, b, c := s.session("a"), s.session("b"), s.session("c")
	first := s.want(fsmpb.Result_OK, jobOp(a, 1, "j"))
	s.want(fsmpb.Result_QUEUED, jobOp(b, 1, "j"))
	s.want(fsmpb.Result_QUEUED, jobOp(c, 1, "j"))
	s.do(endOp(a))
	second, _ := s.m.Result(b, 1)
	if first.Attempt != 1 || second.Attempt != 2 || second.Token <= first.Token {
		t.Fatalf("grants: got %v, then %v; want attempts 1 and 2 under rising tokens", first, second)
	}
	s.want(fsmpb.Result_NOT_HELD, doneOp(b, 2, "j", first.Token, "stale", 0, 0))
	done := s.want(fsmpb.Result_OK, doneOp(b, 3, "j", second.Token, "result", time.Hour, 99))
	want := Job{Name: "j", Attempt: 2, Done: Token(done.Token), Token: Token(second.Token), Result: []byte("result"),
		Keep: time.Hour, At: time.Unix(0, 99)}
	if got, err := s.m.Job([]byte("j")); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("record: got %+v, %v; want %+v", got, err, want)
	}
	s.wantTold(tell(JobCompleted, 0, "j", 1, second.Token), tell(Answered, 0, "j", 1, 0), tell(Freed, Unlocked, "j", 1, second.Token))
	s.wantState(fsmpb.Lock_JOB, "j", "idle")
	waited, _ := s.m.Result(c, 1)
	asked := s.want(fsmpb.Result_DONE, jobOp(c, 2, "j"))
	for what, res := range map[string]*fsmpb.Result{"waited": waited, "asked": asked} {
		if res.GetStatus() != fsmpb.Result_DONE || string(res.Job.GetResult()) != "result" || res.Job.Attempt != 2 || res.Job.Done != done.Token {
			t.Errorf("%s: got %v, want DONE with the record", what, res)
		}
	}
	if again := s.want(fsmpb.Result_OK, doneOp(0, 0, "j", second.Token, "again", 0, 0)); again.Token != done.Token {
		t.Errorf("completed again: got %v, want the first completion", again)
	}
	if got, _ := s.m.Job([]byte("j")); string(got.Result) != "result" {
		t.Errorf("record after the second completion: got %q, want result", got.Result)
	}
}

// A result is answered whole, also when it is asked for in the entry that records it, but remembered only if it is short.
func TestMachine_JobDone_LongResult(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	long := string(bytes.Repeat([]byte("r"), MaxJobResult))
	tok := s.want(fsmpb.Result_OK, jobOp(a, 1, "j")).Token
	s.want(fsmpb.Result_QUEUED, jobOp(b, 1, "j"))
	try := jobOp(b, 2, "j")
	try.GetLock().Try = true
	res := s.do(doneOp(0, 0, "j", tok, long, 0, 0), try)
	if res[1].Status != fsmpb.Result_DONE || string(res[1].Job.Result) != long {
		t.Errorf("asked in the same entry: got %v of %d bytes, want DONE with all", res[1].Status, len(res[1].Job.GetResult()))
	}
	if res := s.want(fsmpb.Result_DONE, jobOp(b, 3, "j")); string(res.Job.Result) != long || res.Trimmed {
		t.Errorf("asked later: got %d bytes, want all", len(res.Job.Result))
	}
	for seq := uint64(1); seq <= 3; seq++ {
		if res, _ := s.m.Result(b, seq); res.GetStatus() != fsmpb.Result_DONE || !res.Trimmed || res.Job.Result != nil || res.Job.Attempt != 1 {
			t.Errorf("remembered %d: got %v, want DONE without its result", seq, res)
		}
	}
}

// A waiter that acknowledged its place finds nothing of it after the completion, and the record instead.
func TestMachine_JobDone_AcknowledgedWaiter(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	tok := s.want(fsmpb.Result_OK, jobOp(a, 1, "j")).Token
	s.want(fsmpb.Result_QUEUED, jobOp(b, 1, "j"))
	s.do(by(b, 2, 1, touchOp()))
	s.want(fsmpb.Result_OK, doneOp(0, 0, "j", tok, "r", 0, 0))
	if res, ok := s.m.Result(b, 1); ok {
		t.Errorf("got %v, want nothing", res)
	}
	s.want(fsmpb.Result_DONE, jobOp(b, 3, "j"))
}

// A grant that is cancelled was never run: it counts no attempt and leaves no record. One that was given back did and does.
func TestMachine_CancelLock_CountsNoAttempt(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	s.want(fsmpb.Result_OK, jobOp(a, 1, "j"))
	s.want(fsmpb.Result_QUEUED, jobOp(b, 1, "j"))
	s.want(fsmpb.Result_RELEASED, cancelOp(a, 2, 1))
	if res, _ := s.m.Result(b, 1); res.GetAttempt() != 1 {
		t.Errorf("next: got %v, want attempt 1", res)
	}
	s.want(fsmpb.Result_RELEASED, cancelOp(b, 2, 1))
	if _, err := s.m.Job([]byte("j")); !errors.Is(err, ErrNotFound) {
		t.Errorf("record: got %v, want ErrNotFound", err)
	}
	tok := s.want(fsmpb.Result_OK, jobOp(a, 3, "j")).Token
	s.want(fsmpb.Result_OK, unlockOf(fsmpb.Lock_JOB, "j", tok))
	if res := s.want(fsmpb.Result_OK, jobOp(b, 3, "j")); res.Attempt != 2 {
		t.Errorf("after one that failed: got %v, want attempt 2", res)
	}
}

// A record is forgotten when nobody runs the job or waits for it, and only the completion that was meant; then it runs anew.
func TestMachine_JobForget(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	s.want(fsmpb.Result_NOT_FOUND, forgetOp("j", 0))
	tok := s.want(fsmpb.Result_OK, jobOp(a, 1, "j")).Token
	s.want(fsmpb.Result_HELD, forgetOp("j", 0))
	done := Token(s.want(fsmpb.Result_OK, doneOp(0, 0, "j", tok, "r", 0, 0)).Token)
	s.want(fsmpb.Result_NOT_FOUND, forgetOp("j", done+1))
	s.want(fsmpb.Result_OK, forgetOp("j", done))
	s.want(fsmpb.Result_NOT_FOUND, forgetOp("j", done))
	if res := s.want(fsmpb.Result_OK, jobOp(a, 2, "j")); res.Attempt != 1 {
		t.Errorf("forgotten job: got %v, want attempt 1", res)
	}
	s.do(unlockOf(fsmpb.Lock_JOB, "j", s.token(a, 2)))
	s.want(fsmpb.Result_OK, forgetOp("j", 0))
}

// Jobs are listed by name, page by page, each with its record and with who runs it and how many wait, also after the machine was
// opened again.
func TestMachine_Jobs(t *testing.T) {
	s := owned(t)
	a, b := s.session("a"), s.session("b")
	for i, name := range []string{"b/2", "a", "b/1", "b/3", "b/4"} {
		tok := s.want(fsmpb.Result_OK, jobOp(a, uint64(i)+1, name)).Token
		switch name {
		case "b/1":
			s.want(fsmpb.Result_QUEUED, jobOp(b, 9, name))
		case "b/4":
			s.want(fsmpb.Result_OK, unlockOf(fsmpb.Lock_JOB, name, tok))
		default:
			s.want(fsmpb.Result_OK, doneOp(0, 0, name, tok, "r"+name, 0, 0))
		}
	}
	again, err := Open(s.db, 7, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, after string
		limit, size   int
		want          []string
		more          bool
	}{
		{"", "", 0, 0, []string{"a ra", "b/1 run by a, 1 wait", "b/2 rb/2", "b/3 rb/3", "b/4 "}, false},
		{"b/", "", 2, 0, []string{"b/1 run by a, 1 wait", "b/2 rb/2"}, true},
		{"b/", "b/2", 2, 0, []string{"b/3 rb/3", "b/4 "}, false},
		{"b/", "", 0, 5, []string{"b/1 run by a, 1 wait", "b/2 rb/2", "b/3 rb/3"}, true},
		{"b/", "b/2", 0, 1, []string{"b/3 rb/3"}, true},
		{"c", "", 0, 0, nil, false},
	} {
		for _, m := range []*Machine{s.m, again} {
			jobs, more, err := m.Jobs([]byte(c.prefix), []byte(c.after), c.limit, c.size)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, j := range jobs {
				line := fmt.Sprint(j.Name, " ", string(j.Result))
				if j.Holder.Token != 0 {
					line += fmt.Sprintf("run by %s, %d wait", j.Holder.Node, j.Waiters)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || more != c.more {
				t.Errorf("jobs under %q after %q: more %v, want %v (-want +got):\n%s", c.prefix, c.after, more, c.more, diff)
			}
		}
	}
}

// A record's age is never more than what owners have measured since its completion, whichever owners they were and whatever the
// wall clock of the completion says. Records for ever are not among those to forget.
func TestMachine_KeptJobs(t *testing.T) {
	s := owned(t)
	a := s.session("a")
	const long = 24 * time.Hour
	complete := func(seq uint64, name string, keep time.Duration) Token {
		tok := s.want(fsmpb.Result_OK, jobOp(a, seq, name)).Token
		return Token(s.want(fsmpb.Result_OK, doneOp(0, 0, name, tok, "r", keep, int64(seq))).Token)
	}
	want := func(want ...KeptJob) {
		t.Helper()
		again, err := Open(s.db, 7, 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*Machine{s.m, again} {
			if diff := cmp.Diff(want, m.KeptJobs()); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			for _, k := range want {
				if got, ok := m.KeptJob([]byte(k.Name)); !ok || got != k {
					t.Errorf("%s: got %+v, %v; want %+v", k.Name, got, ok, k)
				}
			}
		}
	}
	s.do(passOp(0, MaxPass))
	first := complete(1, "first", long)
	complete(2, "for ever", 0)
	s.do(passOp(MaxPass, MaxPass)) // it may have been completed at the end of it
	second := complete(3, "second", time.Hour)
	want(KeptJob{"first", first, long, 0}, KeptJob{"second", second, time.Hour, 0})
	s.claim("b", 2)
	for range 2 { // the second time a copy
		s.do(passOp(2*MaxPass, time.Second), passOp(2*MaxPass+time.Second, MaxPass))
	}
	want(KeptJob{"first", first, long, MaxPass + time.Second}, KeptJob{"second", second, time.Hour, time.Second})
	s.do(forgetOp("first", first))
	want(KeptJob{"second", second, time.Hour, time.Second})
	if _, ok := s.m.KeptJob([]byte("for ever")); ok {
		t.Error("a record for ever is among those to forget")
	}
	s.want(fsmpb.Result_CONFLICT, passOp(0, time.Second))
	for _, bad := range []time.Duration{0, -1, MaxPass + 1} {
		s.want(fsmpb.Result_INVALID, passOp(s.m.Passed(), bad))
	}
}
