package membership

import (
	"bytes"
	"regexp"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// A logWriter turns the gossip library's lines into records of a logger. It also reads from them what the library tells
// in no other way: that a member did not answer a probe.
type logWriter struct {
	log    hclog.Logger
	silent func(id string)
	probe  *regexp.Regexp
	closed atomic.Bool // later lines are dropped: the library's goroutines outlive it
}

func newLogWriter(log hclog.Logger, silent func(id string)) *logWriter {
	return &logWriter{
		log:    log,
		silent: silent,
		probe:  regexp.MustCompile(`^memberlist: Suspect (\S+) has failed, no acks received$`),
	}
}

// Write takes one line. What the library calls an error is a peer that did not answer or sent nonsense, and is a warning
// here; what it calls information is of use only when gossip itself is looked into.
func (w *logWriter) Write(line []byte) (int, error) {
	n := len(line)
	if w.closed.Load() {
		return n, nil
	}
	level, text := split(bytes.TrimRight(line, "\n"))
	if m := w.probe.FindSubmatch(text); m != nil {
		w.silent(string(m[1]))
	}
	if w.log.GetLevel() > level && w.log.GetLevel() != hclog.NoLevel {
		return n, nil
	}
	w.log.Log(level, string(bytes.ToValidUTF8(text, []byte("?"))))
	return n, nil
}

// split takes the level off a line.
func split(line []byte) (hclog.Level, []byte) {
	if bytes.Contains(line, []byte("ignoring alive message")) {
		line = bytes.TrimPrefix(line, []byte("[WARN] ")) // the table complained, once
		return hclog.Debug, line
	}
	for _, l := range []struct {
		prefix string
		level  hclog.Level
	}{
		{"[DEBUG] ", hclog.Trace},
		{"[INFO] ", hclog.Debug},
		{"[WARN] ", hclog.Warn},
		{"[ERR] ", hclog.Warn},
		{"[ERROR] ", hclog.Warn},
	} {
		if rest, ok := bytes.CutPrefix(line, []byte(l.prefix)); ok {
			return l.level, rest
		}
	}
	return hclog.Debug, line
}
