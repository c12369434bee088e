package nodetest

import (
	"bytes"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logger sends the logs of a node to the test, and looks for what must never stand there.
func (c *Cluster) logger(name string) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: c.o.Log, Output: logWriter{c}, TimeFormat: "05.000"})
	l.RegisterSink(fatalSink{c})
	return l
}

type logWriter struct{ c *Cluster }

func (w logWriter) Write(b []byte) (int, error) {
	if !w.c.isDone() {
		w.c.t.Logf("%s", bytes.TrimSpace(b))
	}
	return len(b), nil
}

// fatalSink reports panics of the Raft library, also those that are recovered: what panics there may as well do so in a goroutine in
// which nothing recovers it. The library does not say which of the process's nodes it was.
type fatalSink struct{ c *Cluster }

func (s fatalSink) Accept(_ string, level hclog.Level, msg string, pairs ...any) {
	if level < hclog.Error || s.c.isDone() || s.c.mayFail() {
		return
	}
	text := msg
	for _, p := range pairs {
		if err, ok := p.(error); ok {
			text += ": " + err.Error()
		}
	}
	if strings.HasPrefix(text, "panic: ") || strings.Contains(text, "panicked") {
		s.c.checks.failf("the Raft library panicked: %s", text)
	}
}

// mayFail says whether some node's disk failed, or the test expects a node to fail.
func (c *Cluster) mayFail() bool {
	for _, m := range c.all() {
		if m.mayFail() || m.disk.failed() {
			return true
		}
	}
	return false
}

func (c *Cluster) isDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}
