//go:build unix

// Package procstest runs an example as its user would, and looks whether it leaves processes or files.
package procstest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Patience bounds every wait of the examples' tests. It is long: the machine may be busy with other tests.
const Patience = 3 * time.Minute

// A Story is an example that runs, with a directory for temporary files of its own.
type Story struct {
	Cmd    *exec.Cmd
	Stdout io.Reader

	tmp  string
	left *os.File // ends when no process is left that has its other end, which all of the story's processes inherit
}

// Start starts the example with a -limit, the given arguments, and env added to its environment.
func Start(t *testing.T, binary string, limit time.Duration, env []string, args ...string) *Story {
	t.Helper()
	left, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { left.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	t.Cleanup(cancel)
	s := &Story{Cmd: exec.CommandContext(ctx, binary, append([]string{"-limit", limit.String()}, args...)...), tmp: t.TempDir(), left: left}
	s.Cmd.Env = append(append(os.Environ(), "TMPDIR="+s.tmp), env...)
	s.Cmd.ExtraFiles = []*os.File{inherited}
	s.Cmd.Stderr = os.Stderr
	if s.Stdout, err = s.Cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	err = s.Cmd.Start()
	inherited.Close()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Output reads what the example prints until it ends, and wants exit status 0.
func (s *Story) Output(t *testing.T) string {
	t.Helper()
	out, err := io.ReadAll(s.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// WantGone waits until no process of the story is left.
func (s *Story) WantGone(t *testing.T) {
	t.Helper()
	if err := s.left.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(s.left); err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

// WantNothing waits until no process of the story is left, and no file.
func (s *Story) WantNothing(t *testing.T) {
	t.Helper()
	s.WantGone(t)
	if left, err := os.ReadDir(s.tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
}

// Kills is how often a test kills: OARLOCK_KILLS, else once.
func Kills(t *testing.T) int {
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
