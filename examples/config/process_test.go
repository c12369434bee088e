//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
	"github.com/oarlock/oarlock/examples/internal/procs/procstest"
	"github.com/oarlock/oarlock/node"
)

// asExample makes this test binary be the example, and the processes of its story, so that they run under the race detector when the test does.
const asExample = "OARLOCK_CONFIG_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(asExample) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func start(t *testing.T) *procstest.Story {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return procstest.Start(t, binary, procstest.Patience, []string{asExample + "=1"})
}

// TestProcess_Config: all processes see each change, none is lost among those made at once, a value that Validate refuses is not written,
// one written past it leaves each at its last good value, and a kill of the shard's owner or a restart loses nothing.
func TestProcess_Config(t *testing.T) {
	t.Parallel()
	x := start(t)
	out := x.Output(t)
	for _, want := range []string{
		`app-1 sets the flags: new checkout for 10 %, no banner\n  seen by app-1 after \S+, app-2 after \S+, app-3 after \S+\n`,
		`Nobody's change is lost: new checkout for 30 %, banner "Sale"\n`,
		`CompareAndSwap at revision 1\.\n  Refused, nothing written: .*record was changed meanwhile: it is at revision 4\n`,
		`app-2 sets 150 %.*\n  Refused, nothing written: .*value is of no use: new checkout for 150 %`,
		`Each stays at its last good flags, new checkout for 30 %, banner "Sale", and says why:\n(    app-\d: value is of no use: new checkout for 900 %.*\n){3}`,
		`kill -9 \d+: app-\d, which owned .*\n  seen by app-\d after \S+, app-\d after \S+\napp-\d is started again`,
		`serves, and has the present flags from the first moment: new checkout for 35 %, banner "Sale ends today"\n`,
		`The record's history:\n(  revision \d  .*\n){8}8 changes: each process saw every one .*\nafter \S+ when the owner was killed\.\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the story does not say %s:\n%s", want, out)
		}
	}
	x.WantNothing(t)
}

// An interrupt ends all processes and leaves no files.
func TestProcess_Interrupted(t *testing.T) {
	t.Parallel()
	x := start(t)
	for lines := bufio.NewScanner(x.Stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "app-2 runs") {
			if err := x.Cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	_ = x.Cmd.Wait()
	if got := x.Cmd.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("exit status: got %d, want %d", got, exitFailed)
	}
	x.WantNothing(t)
}

// A change that a process does not see in time, or that its watch leaves out, repeats or tells too late, is found, and named.
func TestStory_Unseen(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	all := []node.Revision{1, 2, 5}
	for name, c := range map[string]struct {
		found node.Revision
		told  []node.Revision
		now   report
		want  error
	}{
		"All":           {told: all, now: report{Revision: 5}},
		"FromItsStart":  {found: 2, told: []node.Revision{2, 5}, now: report{Revision: 5}},
		"NotTheLast":    {told: []node.Revision{1, 2}, now: report{Revision: 5}, want: errUnseen},
		"LeftOut":       {told: []node.Revision{1, 5}, now: report{Revision: 5}, want: errUnseen},
		"Twice":         {told: []node.Revision{1, 2, 2, 5}, now: report{Revision: 5}, want: errUnseen},
		"OutOfOrder":    {told: []node.Revision{2, 1, 5}, now: report{Revision: 5}, want: errUnseen},
		"LiveIsBehind":  {told: all, now: report{Revision: 2}, want: errUnseen},
		"FromTooLate":   {found: 2, told: []node.Revision{5}, now: report{Revision: 5}, want: errUnseen},
		"FromTooEarly":  {found: 2, told: all, now: report{Revision: 5}, want: errUnseen},
		"NothingIsTold": {now: report{Revision: 5}, want: errUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			m := &procs.Member{Name: "app-1", Alive: true}
			a := &app{Member: m, first: &report{Revision: c.found}, now: &c.now, told: c.told}
			s := &story{cluster: cluster{out: io.Discard, cast: procs.NewCast[report]("", ""), apps: []*app{a}}}
			_, seen := s.seen(ended, time.Now(), "revision 5", func(r *report) bool { return r.Revision == 5 })
			if got := errors.Join(seen, s.toldAll(ended, a, all)); !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
