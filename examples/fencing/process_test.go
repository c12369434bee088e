//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/oarlock/oarlock/examples/internal/procs/procstest"
)

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fencing")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func start(t *testing.T, binary string) *procstest.Story {
	t.Helper()
	return procstest.Start(t, binary, procstest.Patience, nil)
}

// block returns the lines below a heading, up to the next one.
func block(t *testing.T, out, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(out, heading+"\n")
	if !ok {
		t.Fatalf("no block %q in:\n%s", heading, out)
	}
	end := regexp.MustCompile(`(?m)^\S`).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// A holder that is paused between check and write overwrites the next one's write, and with fencing tokens its write is refused;
// each event is one line, and nothing is left: case 15.
func TestProcess_Story(t *testing.T) {
	t.Parallel()
	x := start(t, build(t))
	out := x.Output(t)
	for _, c := range []struct{ heading, verdict, final string }{
		{"without fencing:", `write of balance=100 accepted`, `'balance=100'`},
		{"with fencing tokens:", `write of balance=100 rejected \(token (\d+) < (\d+)\)`, `'balance=90'`},
	} {
		event := func(who, what string) string { return `  t=(\d+) +` + who + `  token=(\d+) +` + what + `[^\n]*\n` }
		want := regexp.MustCompile(`^` + event("A", "takes the lock for 10 units, reads balance=80") + event("A", "is paused") +
			event("B", "takes the lock.*reads balance=80") + event("B", "write of balance=90 accepted") +
			event("A", "wakes up") + event("A", c.verdict) + event("A", "asks its lock again: lost") + `  final value: ` + c.final + `\n$`)
		got := want.FindStringSubmatch(block(t, out, c.heading))
		if got == nil {
			t.Errorf("%s want %v in:\n%s", c.heading, want, out)
			continue
		}
		number := func(i int) int {
			n, err := strconv.Atoi(got[i])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if takes, wakes := number(5), number(9); takes < 10 || wakes < 15 {
			t.Errorf("%s B takes the lock at %d, A wakes up at %d, want 10 and 15 at least", c.heading, takes, wakes)
		}
		if a, b := number(2), number(6); a >= b || a != number(12) {
			t.Errorf("%s A has token %d and writes with %d, B has %d; want B's to be larger", c.heading, a, number(12), b)
		}
	}
	x.WantNothing(t)
}

// However the story ends while A is stopped, no process is left; an interrupt leaves no files either.
func TestProcess_Stopped(t *testing.T) {
	t.Parallel()
	binary := build(t)
	for _, sig := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			x := start(t, binary)
			for lines := bufio.NewScanner(x.Stdout); lines.Scan(); {
				if strings.Contains(lines.Text(), "is paused") {
					if err := x.Cmd.Process.Signal(sig); err != nil {
						t.Error(err)
					}
				}
			}
			if err := x.Cmd.Wait(); err == nil {
				t.Error("exit status: got 0, want another")
			}
			x.WantGone(t)
			if sig == os.Interrupt {
				x.WantNothing(t)
			}
		})
	}
}
