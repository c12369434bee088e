package logbridge

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/logger"
)

// capture returns a logger that writes plain lines into the buffer, and the buffer.
func capture(level hclog.Level) (hclog.Logger, *bytes.Buffer) {
	b := new(bytes.Buffer)
	return hclog.New(&hclog.LoggerOptions{Output: b, Level: level, DisableTime: true, Mutex: new(sync.Mutex)}), b
}

func lines(b *bytes.Buffer) []string {
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

// dragonboat's lines reach every attached node at the mapped level, and nobody once detached: nodes come and go while
// dragonboat's logger is set once for the process.
func TestAttach(t *testing.T) {
	raft := logger.GetLogger("attach-test")
	first, firstLog := capture(hclog.Trace)
	second, secondLog := capture(hclog.Warn)
	detachFirst, detachSecond := Attach(first), Attach(second)

	raft.Debugf("d %d", 1)
	raft.Infof("i %d", 2)
	raft.Warningf("w %d", 3)
	raft.Errorf("e %d", 4)
	want := []string{
		"[TRACE] raft: d 1: pkg=attach-test",
		"[DEBUG] raft: i 2: pkg=attach-test",
		"[WARN]  raft: w 3: pkg=attach-test",
		"[ERROR] raft: e 4: pkg=attach-test",
	}
	if diff := cmp.Diff(want, lines(firstLog)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[2:], lines(secondLog)); diff != "" {
		t.Error(diff)
	}

	detachFirst()
	detachFirst()
	firstLog.Reset()
	raft.Errorf("e %d", 5)
	if firstLog.Len() != 0 || !strings.Contains(secondLog.String(), "e 5") {
		t.Errorf("after detach: got %q and %q, want nothing and a line", firstLog, secondLog)
	}
	detachSecond()
	raft.Errorf("e %d", 6)
	if strings.Contains(secondLog.String(), "e 6") {
		t.Errorf("a detached logger got %q", secondLog)
	}
}

// Panicf still panics, after it was logged, and whether or not a node is attached: dragonboat's code relies on it.
func TestAttach_Panicf(t *testing.T) {
	raft := logger.GetLogger("panic-test")
	l, log := capture(hclog.Warn)
	for _, attached := range []bool{true, false} {
		detach := Attach(l)
		if !attached {
			detach()
		}
		got := func() (p any) {
			defer func() { p = recover() }()
			raft.Panicf("shard %d broke", 7)
			return nil
		}()
		detach()
		if got != "shard 7 broke" {
			t.Errorf("attached %v: got panic %v, want shard 7 broke", attached, got)
		}
	}
	if got := strings.Count(log.String(), "panic: shard 7 broke"); got != 1 {
		t.Errorf("got %d log lines, want 1: %q", got, log)
	}
}

// The steps of ordinary elections are no warnings.
func TestAttach_Elections(t *testing.T) {
	l, log := capture(hclog.Trace)
	defer Attach(l)()
	logger.GetLogger("raft").Warningf("became candidate")
	if got, want := log.String(), "[INFO]  raft: became candidate: pkg=raft\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A program may set the level of a package of dragonboat; it is honoured.
func TestAttach_SetLevel(t *testing.T) {
	l, log := capture(hclog.Trace)
	defer Attach(l)()
	raft := logger.GetLogger("level-test")
	raft.SetLevel(logger.ERROR)
	raft.Warningf("hidden")
	raft.Errorf("shown")
	if got := log.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "shown") {
		t.Errorf("got %q, want only the error", got)
	}
}

// If another part of the program set the factory first, that is no panic: the library is a guest there.
func TestRouter_Install(t *testing.T) {
	var r router
	calls := 0
	taken := func(logger.Factory) { calls++; panic("setting the logger factory again") }
	for range 2 {
		if r.install(taken) {
			t.Error("got installed, want refused")
		}
	}
	if calls != 1 {
		t.Errorf("got %d calls, want 1", calls)
	}
	var free router
	if !free.install(func(logger.Factory) {}) || !free.install(nil) {
		t.Error("got refused, want installed")
	}
}

// Attaching, logging and detaching may run at once.
func TestAttach_Concurrent(t *testing.T) {
	raft := logger.GetLogger("concurrent-test")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { // stops when its loop is through
			for range 100 {
				l, _ := capture(hclog.Warn)
				detach := Attach(l)
				raft.Warningf("x")
				detach()
			}
		})
	}
	wg.Wait()
	if n := len(process.attached()); n != 0 {
		t.Errorf("got %d loggers left, want 0", n)
	}
}
