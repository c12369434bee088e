//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs/procstest"
	"github.com/oarlock/oarlock/node"
)

// asExample makes this test binary be the example, and the processes of its story, so that they run under the race detector when the test does.
const asExample = "OARLOCK_NIGHTLY_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(asExample) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func start(t *testing.T, blows int) *procstest.Story {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limit := procstest.Patience + time.Duration(blows)*20*time.Second
	return procstest.Start(t, binary, limit, []string{asExample + "=1"}, "-blows", strconv.Itoa(blows))
}

// TestProcess_Nightly: with a job every second and whoever runs it killed or stopped, again and again, each date has exactly one completed
// run, the gaps are bounded, a late run is refused, and nothing stops for good (case 45).
func TestProcess_Nightly(t *testing.T) {
	t.Parallel()
	n := 2 * procstest.Kills(t)
	x := start(t, n)
	out := x.Output(t)
	want := regexp.MustCompile(fmt.Sprintf(`\n%d dates, \d+ runs begun, %[1]d completed: each date was billed exactly once\. .*\n$`, 6+5*n))
	if !want.MatchString(out) || strings.Count(out, "kill -9") != n/2 || strings.Count(out, "kill -STOP") != n/2 {
		t.Errorf("want %d blows and at the end %v:\n%s", n, want, out)
	}
	if strings.Count(out, "wakes up") != n/2 {
		t.Errorf("the story does not say what became of those that were stopped:\n%s", out)
	}
	x.WantNothing(t)
}

// An interrupt ends all processes, also one that is stopped, and leaves no files.
func TestProcess_Interrupted(t *testing.T) {
	t.Parallel()
	x := start(t, 2)
	for lines := bufio.NewScanner(x.Stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "kill -STOP") {
			if err := x.Cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := x.Cmd.Wait(); err == nil {
		t.Error("exit status: got 0, want another")
	}
	x.WantNothing(t)
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
