package logbridge

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

func newSlog(level slog.Level) (hclog.Logger, *bytes.Buffer) {
	b := new(bytes.Buffer)
	h := slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, AddSource: true, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case slog.SourceKey:
			return slog.String("source", filepath.Base(a.Value.Any().(*slog.Source).File))
		}
		return a
	}})
	return Slog(slog.New(h)), b
}

// Levels, names, pairs and the caller's source arrive in slog.
func TestSlog(t *testing.T) {
	l, b := newSlog(slogTrace)
	l.Trace("t")
	l.Named("a").Named("b").With("k", 1).Warn("w", "x", "y")
	l.ResetNamed("c").Error("e", "f", hclog.Fmt("%d of %d", 1, 2))
	l.Log(hclog.NoLevel, "n")
	l.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true}).Print("2026/11/29 [ERR] std")
	l.StandardLogger(nil).Print("[plain] std")
	want := []string{
		"level=DEBUG-4 source=slog_test.go msg=t",
		"level=WARN source=slog_test.go msg=w logger=a.b k=1 x=y",
		`level=ERROR source=slog_test.go msg=e logger=c f="1 of 2"`,
		"level=INFO source=slog_test.go msg=n",
		"level=ERROR source=log.go msg=std",
		`level=INFO source=log.go msg="[plain] std"`,
	}
	if diff := cmp.Diff(want, lines(b)); diff != "" {
		t.Error(diff)
	}
}

// What neither the handler nor SetLevel lets through is not written, and the questions about levels say so.
func TestSlog_Level(t *testing.T) {
	l, b := newSlog(slog.LevelInfo)
	if l.GetLevel() != hclog.Info || l.IsDebug() || !l.IsInfo() {
		t.Errorf("got level %v, debug %v, info %v, want info only", l.GetLevel(), l.IsDebug(), l.IsInfo())
	}
	sub := l.Named("sub")
	l.SetLevel(hclog.Error)
	sub.Warn("w")
	sub.Error("e")
	if got := b.String(); strings.Contains(got, "msg=w") || !strings.Contains(got, "msg=e") {
		t.Errorf("got %q, want only the error", got)
	}
	l.SetLevel(hclog.Off)
	if l.GetLevel() != hclog.Off || l.IsError() {
		t.Errorf("got level %v, want off", l.GetLevel())
	}
}

// The files by which dragonboat can be changed from outside are found, and only those.
func TestSettingsFiles(t *testing.T) {
	dir := t.TempDir()
	if got := SettingsFiles(dir); got != nil {
		t.Errorf("got %v in an empty directory, want none", got)
	}
	soft := filepath.Join(dir, "dragonboat-soft-settings.json")
	for _, name := range []string{soft, filepath.Join(dir, "settings.json")} {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{soft}, SettingsFiles(dir)); diff != "" {
		t.Error(diff)
	}
}
