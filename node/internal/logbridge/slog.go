package logbridge

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// slogTrace is where hclog's Trace stands among slog's levels: one step below Debug.
const slogTrace = slog.LevelDebug - 4

// Slog returns an hclog.Logger that writes to s. Names become the attribute "logger", key/value pairs become attributes, and
// the source line is the caller's. SetLevel can only make it quieter than s's handler is. It is safe for concurrent use.
func Slog(s *slog.Logger) hclog.Logger {
	return &slogLogger{handler: s.Handler(), limit: new(atomic.Int32)}
}

type slogLogger struct {
	handler slog.Handler // without name and args
	name    string
	args    []any
	limit   *atomic.Int32 // an hclog.Level; shared with what is derived from this logger
}

var _ hclog.Logger = (*slogLogger)(nil)

func (l *slogLogger) Log(level hclog.Level, msg string, args ...any) { l.log(level, msg, args) }
func (l *slogLogger) Trace(msg string, args ...any)                  { l.log(hclog.Trace, msg, args) }
func (l *slogLogger) Debug(msg string, args ...any)                  { l.log(hclog.Debug, msg, args) }
func (l *slogLogger) Info(msg string, args ...any)                   { l.log(hclog.Info, msg, args) }
func (l *slogLogger) Warn(msg string, args ...any)                   { l.log(hclog.Warn, msg, args) }
func (l *slogLogger) Error(msg string, args ...any)                  { l.log(hclog.Error, msg, args) }

func (l *slogLogger) IsTrace() bool { return l.enabled(hclog.Trace) }
func (l *slogLogger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *slogLogger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *slogLogger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *slogLogger) IsError() bool { return l.enabled(hclog.Error) }

func (l *slogLogger) ImpliedArgs() []any { return slices.Clone(l.args) }
func (l *slogLogger) Name() string       { return l.name }

func (l *slogLogger) With(args ...any) hclog.Logger {
	sub := *l
	sub.args = slices.Concat(l.args, args)
	return &sub
}

func (l *slogLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *slogLogger) ResetNamed(name string) hclog.Logger {
	sub := *l
	sub.name = name
	return &sub
}

func (l *slogLogger) SetLevel(level hclog.Level) { l.limit.Store(int32(level)) }

// GetLevel returns the quietest level that both SetLevel and the handler let through.
func (l *slogLogger) GetLevel() hclog.Level {
	for level := hclog.Trace; level <= hclog.Error; level++ {
		if l.enabled(level) {
			return level
		}
	}
	return hclog.Off
}

func (l *slogLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter returns a writer that logs each Write as one line. Its level is o.ForceLevel, or what a prefix such as
// [WARN] says if o asks to infer it, or Info.
func (l *slogLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	if o == nil {
		o = &hclog.StandardLoggerOptions{}
	}
	return &lineWriter{logger: l, options: *o}
}

func (l *slogLogger) enabled(level hclog.Level) bool {
	return level >= hclog.Level(l.limit.Load()) && l.handler.Enabled(context.Background(), slogLevel(level))
}

// log must be called directly by the method that the caller called: the source line is two frames up from here.
func (l *slogLogger) log(level hclog.Level, msg string, args []any) {
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	if level >= hclog.Off || !l.enabled(level) {
		return
	}
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	r := slog.NewRecord(time.Now(), slogLevel(level), msg, pc[0])
	if l.name != "" {
		r.AddAttrs(slog.String("logger", l.name))
	}
	r.Add(plain(l.args)...)
	r.Add(plain(args)...)
	_ = l.handler.Handle(context.Background(), r) // nowhere to tell of a log that cannot be written
}

// plain turns hclog's own value types into what any handler can print.
func plain(args []any) []any {
	for i, a := range args {
		f, ok := a.(hclog.Format)
		if !ok || len(f) == 0 {
			continue
		}
		args = slices.Clone(args)
		args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
	}
	return args
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return slogTrace
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

type lineWriter struct {
	logger  *slogLogger
	options hclog.StandardLoggerOptions
}

func (w *lineWriter) Write(b []byte) (int, error) {
	level, text := hclog.Info, strings.TrimRight(string(b), " \t\r\n")
	if w.options.ForceLevel != hclog.NoLevel {
		level = w.options.ForceLevel
	} else if w.options.InferLevels || w.options.InferLevelsWithTimestamp {
		level, text = inferLevel(text)
	}
	w.logger.log(level, text, nil)
	return len(b), nil
}

// inferLevel finds a level in brackets, as the standard logger's users write it, and takes it out of the line with all that
// stands before it.
func inferLevel(line string) (hclog.Level, string) {
	_, rest, ok := strings.Cut(line, "[")
	word, text, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return hclog.Info, line
	}
	switch word {
	case "ERR":
		return hclog.Error, strings.TrimSpace(text)
	case "TRACE", "DEBUG", "INFO", "WARN", "ERROR":
		return hclog.LevelFromString(word), strings.TrimSpace(text)
	}
	return hclog.Info, line
}
