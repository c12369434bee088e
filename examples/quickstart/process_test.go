//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests. It is long: the machine may be busy with other tests.
const patience = 3 * time.Minute

// build builds the quickstart as its user would.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// command runs the quickstart with a directory for temporary files of its own.
func command(t *testing.T, binary string, args ...string) (cmd *exec.Cmd, tmp string) {
	tmp = t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, binary, append(args, "-limit", patience.String())...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

// status is the exit status of a command that ran, -1 if a signal ended it.
func status(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		t.Fatalf("run: %v", err)
	}
	return exit.ExitCode()
}

// pids are the processes that a story named.
func pids(t *testing.T, out string) (all []int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`runs as process (\d+)`).FindAllStringSubmatch(out, -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	if len(all) < 3 {
		t.Fatalf("the story named processes %v, want 3 at least:\n%s", all, out)
	}
	return all
}

// wantGone waits until none of the processes is left.
func wantGone(t *testing.T, pids []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for _, pid := range pids {
		for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatalf("process %d is left", pid)
			}
		}
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
}

// TestProcess_Story: the stories end as they promise, and nothing is left behind, whatever ends them (cases 15, 42).
func TestProcess_Story(t *testing.T) {
	t.Parallel()
	binary := build(t)

	// Through a kill, a late write and a lost majority each customer is billed exactly once, and a late write is refused.
	t.Run("FencedBillsExactlyOnce", func(t *testing.T) {
		t.Parallel()
		cmd, tmp := command(t, binary)
		out, err := cmd.CombinedOutput()
		if got := status(t, err); got != exitDone {
			t.Fatalf("exit status: got %d, want %d\n%s", got, exitDone, out)
		}
		for _, want := range []string{"kill -9", "higher token", "REFUSED the late charge of customer-", "ErrNoQuorum"} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("the story does not say %q:\n%s", want, out)
			}
		}
		const last = "300 customers, 300 charges: each customer was billed exactly once.\n"
		if !strings.HasSuffix(string(out), last) {
			t.Errorf("the story does not end with %q:\n%s", last, out)
		}
		if bytes.Contains(out, []byte("\033")) {
			t.Error("the story draws on a pipe")
		}
		wantGone(t, pids(t, string(out)))
		wantEmpty(t, tmp)
	})

	// Without the check the late write wins, and the audit names the customer that was held in the window.
	t.Run("UnfencedNamesTheCustomer", func(t *testing.T) {
		t.Parallel()
		cmd, tmp := command(t, binary, "-unfenced")
		out, err := cmd.CombinedOutput()
		if got := status(t, err); got != exitBilled {
			t.Fatalf("exit status: got %d, want %d\n%s", got, exitBilled, out)
		}
		held := regexp.MustCompile(`about to charge (customer-\d+)`).FindSubmatch(out)
		if held == nil {
			t.Fatalf("the story names no held customer:\n%s", out)
		}
		want := regexp.MustCompile(string(held[1]) + `: the charge by app-\d under token \d+ was overwritten by app-\d under the older token \d+\n`)
		if !want.Match(out) {
			t.Errorf("the audit does not say %q:\n%s", want, out)
		}
		wantGone(t, pids(t, string(out)))
		wantEmpty(t, tmp)
	})

	// An interrupt ends all processes, also one that is stopped.
	t.Run("InterruptedLeavesNothing", func(t *testing.T) {
		t.Parallel()
		out, tmp, err := stopAtFreeze(t, binary, os.Interrupt)
		if got := status(t, err); got != exitFailed {
			t.Errorf("exit status: got %d, want %d\n%s", got, exitFailed, out)
		}
		wantGone(t, pids(t, out))
		wantEmpty(t, tmp)
	})

	// The processes end with their parent, also one that is stopped while the parent is killed.
	t.Run("KilledLeavesNoProcess", func(t *testing.T) {
		t.Parallel()
		out, _, _ := stopAtFreeze(t, binary, os.Kill)
		wantGone(t, pids(t, out))
	})
}

// stopAtFreeze runs a story until it has stopped a process, and then sends the signal to the story.
func stopAtFreeze(t *testing.T, binary string, s os.Signal) (out, tmp string, err error) {
	t.Helper()
	cmd, tmp := command(t, binary)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), "kill -STOP") {
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
	}
	return all.String(), tmp, cmd.Wait()
}
