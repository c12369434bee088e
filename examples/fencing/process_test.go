//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of these tests. It is long: the machine may be busy with other tests.
const patience = 3 * time.Minute

// telling is the example, run as a user would.
type telling struct {
	cmd  *exec.Cmd
	tmp  string   // its directory for temporary files
	left *os.File // ends when no process is left that has its other end, which all of the story's processes inherit
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fencing")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// start starts the example and returns what it prints.
func start(t *testing.T, binary string) (*telling, io.Reader) {
	t.Helper()
	left, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { left.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	x := &telling{cmd: exec.CommandContext(ctx, binary, "-limit", patience.String()), tmp: t.TempDir(), left: left}
	x.cmd.Env = append(os.Environ(), "TMPDIR="+x.tmp)
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

// wantGone waits until no process of the story is left.
func (x *telling) wantGone(t *testing.T) {
	t.Helper()
	if err := x.left.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(x.left); err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

func (x *telling) wantNoFiles(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(x.tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
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
	x, stdout := start(t, build(t))
	b, err := io.ReadAll(stdout)
	if err != nil {
		t.Fatal(err)
	}
	out := string(b)
	if err := x.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
	x.wantGone(t)
	x.wantNoFiles(t)
}

// However the story ends while A is stopped, no process is left; an interrupt leaves no files either.
func TestProcess_Stopped(t *testing.T) {
	binary := build(t)
	for _, sig := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			x, stdout := start(t, binary)
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				if strings.Contains(lines.Text(), "is paused") {
					if err := x.cmd.Process.Signal(sig); err != nil {
						t.Error(err)
					}
				}
			}
			if err := x.cmd.Wait(); err == nil {
				t.Error("exit status: got 0, want another")
			}
			x.wantGone(t)
			if sig == os.Interrupt {
				x.wantNoFiles(t)
			}
		})
	}
}
