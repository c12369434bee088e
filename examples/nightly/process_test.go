//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
)

// patience bounds every wait of these tests. It is long: the machine may be busy with other tests.
const patience = 3 * time.Minute

// asExample makes this test binary be the example, and the processes of its story, so that they run under the race detector when the test does.
const asExample = "OARLOCK_NIGHTLY_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(asExample) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// telling is the example, run as a user would.
type telling struct {
	cmd  *exec.Cmd
	tmp  string   // its directory for temporary files
	left *os.File // ends when no process is left that has its other end, which all of the story's processes inherit
}

// start starts the example, and returns what it prints.
func start(t *testing.T, blows int) (*telling, io.Reader) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	left, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { left.Close() })
	limit := patience + time.Duration(blows)*20*time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	x := &telling{cmd: exec.CommandContext(ctx, binary, "-limit", limit.String(), "-blows", strconv.Itoa(blows)), tmp: t.TempDir(), left: left}
	x.cmd.Env = append(os.Environ(), "TMPDIR="+x.tmp, asExample+"=1")
	x.cmd.ExtraFiles = []*os.File{inherited}
	x.cmd.Stderr = os.Stderr
	stdout, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = x.cmd.Start()
	inherited.Close()
	if err != nil {
		t.Fatal(err)
	}
	return x, stdout
}

// wantNothing waits until no process of the story is left, and no file.
func (x *telling) wantNothing(t *testing.T) {
	t.Helper()
	if err := x.left.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(x.left); err != nil {
		t.Errorf("a process is left: %v", err)
	}
	if left, err := os.ReadDir(x.tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
}

// kills is how often the test kills: OARLOCK_KILLS, else once. As often it stops a process.
func kills(t *testing.T) int {
	t.Helper()
	s := os.Getenv("OARLOCK_KILLS")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("OARLOCK_KILLS is %q, want a number above zero", s)
	}
	return n
}

// TestProcess_Nightly: with a job every second and whoever runs it killed or stopped, again and again, each date has exactly one completed
// run, the gaps are bounded, a late run is refused, and nothing stops for good (case 45).
func TestProcess_Nightly(t *testing.T) {
	t.Parallel()
	n := 2 * kills(t)
	x, stdout := start(t, n)
	b, err := io.ReadAll(stdout)
	if err != nil {
		t.Fatal(err)
	}
	out := string(b)
	if err := x.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := regexp.MustCompile(fmt.Sprintf(`\n%d dates, \d+ runs begun, %[1]d completed: each date was billed exactly once\. .*\n$`, 6+5*n))
	if !want.MatchString(out) || strings.Count(out, "kill -9") != n/2 || strings.Count(out, "kill -STOP") != n/2 {
		t.Errorf("want %d blows and at the end %v:\n%s", n, want, out)
	}
	if strings.Count(out, "wakes up") != n/2 {
		t.Errorf("the story does not say what became of those that were stopped:\n%s", out)
	}
	x.wantNothing(t)
}

// An interrupt ends all processes, also one that is stopped, and leaves no files.
func TestProcess_Interrupted(t *testing.T) {
	t.Parallel()
	x, stdout := start(t, 2)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "kill -STOP") {
			if err := x.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := x.cmd.Wait(); err == nil {
		t.Error("exit status: got 0, want another")
	}
	x.wantNothing(t)
}

// The audit finds a date that was completed twice, never, under another token than the record's, or without its bill, and a long gap.
func TestAudit(t *testing.T) {
	bills := t.TempDir()
	if err := os.WriteFile(filepath.Join(bills, "bill"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := dateOf(0)
	done := map[string]record{d: {Date: d, Done: true, Token: 7, File: "bill"}}
	for name, c := range map[string]struct {
		a    audit
		want error
	}{
		"Once":          {audit{records: done, tokens: map[string][]node.Token{d: {7}}}, nil},
		"OnceInSilence": {audit{records: done}, nil},
		"Twice":         {audit{records: done, tokens: map[string][]node.Token{d: {7, 7}}}, errNotOnce},
		"Other":         {audit{records: done, tokens: map[string][]node.Token{d: {8}}}, errNotOnce},
		"Never":         {audit{records: map[string]record{d: {Date: d}}}, errNotOnce},
		"Unknown":       {audit{}, errNotOnce},
		"NoBill":        {audit{records: map[string]record{d: {Date: d, Done: true, Token: 7, File: "x"}}}, errNotOnce},
		"Gap":           {audit{records: done, gap: maxGap + 1}, errNotOnce},
	} {
		c.a.dates = 1
		if err := c.a.verdict(io.Discard, bills); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}
