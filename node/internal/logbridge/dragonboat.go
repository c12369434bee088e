package logbridge

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/logger"
)

// process is where dragonboat's loggers end. It is the one package variable of the library, because dragonboat has one logger
// factory for the whole process that can be set once, while nodes come and go.
var process router

// Attach sends dragonboat's log lines to l until detach is called, which may be done more than once. dragonboat does not say
// which NodeHost a line is about, so each attached logger gets every line. If another part of the program set dragonboat's
// logger first, its lines stay there, and l gets one warning that says so. It does not block.
//
// Levels are one step quieter than dragonboat's, whose Info is about its inner life: Debug becomes Trace, Info Debug,
// Warning Warn, Error Error; but the Warnings of its package raft, which are the steps of ordinary elections, become Info.
// Panicf is logged as Error, after the word "panic: ", and then panics, as dragonboat relies on its not returning; whoever calls into dragonboat
// recovers where it can.
func Attach(l hclog.Logger) (detach func()) {
	if !process.install(logger.SetLoggerFactory) {
		l.Warn("another part of the program has set the Raft library's logger; its messages go there")
	}
	return process.add(l.Named("raft"))
}

// A router hands lines to the loggers that are attached.
type router struct {
	once    sync.Once
	refused bool // set inside once

	mu    sync.Mutex // serialises changes of sinks
	sinks atomic.Pointer[[]*sink]
}

type sink struct{ hclog.Logger }

// install sets the process's logger factory, once, and tells whether it is ours.
func (r *router) install(set func(logger.Factory)) bool {
	r.once.Do(func() {
		defer func() { // it panics if it was called before
			r.refused = recover() != nil
		}()
		set(func(pkg string) logger.ILogger {
			d := &dragonboatLogger{router: r, pkg: pkg}
			d.SetLevel(logger.DEBUG)
			return d
		})
	})
	return !r.refused
}

func (r *router) add(l hclog.Logger) (remove func()) {
	s := &sink{l}
	r.change(func(all []*sink) []*sink { return append(all, s) })
	return func() {
		r.change(func(all []*sink) []*sink {
			return slices.DeleteFunc(all, func(x *sink) bool { return x == s })
		})
	}
}

func (r *router) change(edit func([]*sink) []*sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := edit(slices.Clone(r.attached()))
	r.sinks.Store(&all)
}

func (r *router) attached() []*sink {
	if all := r.sinks.Load(); all != nil {
		return *all
	}
	return nil
}

// log formats the line only if somebody listens at that level.
func (r *router) log(level hclog.Level, pkg, format string, args []any) {
	text := ""
	for _, s := range r.attached() {
		if level < s.GetLevel() {
			continue
		}
		if text == "" {
			text = fmt.Sprintf(format, args...)
		}
		s.Log(level, text, "pkg", pkg)
	}
}

// dragonboatLogger is the logger of one package of dragonboat.
type dragonboatLogger struct {
	router *router
	pkg    string
	limit  atomic.Int32 // a logger.LogLevel; lines above it are dropped
}

var _ logger.ILogger = (*dragonboatLogger)(nil)

func (d *dragonboatLogger) SetLevel(l logger.LogLevel) { d.limit.Store(int32(l)) }

func (d *dragonboatLogger) Debugf(format string, args ...any) {
	d.log(logger.DEBUG, hclog.Trace, format, args)
}

func (d *dragonboatLogger) Infof(format string, args ...any) {
	d.log(logger.INFO, hclog.Debug, format, args)
}

func (d *dragonboatLogger) Warningf(format string, args ...any) {
	level := hclog.Warn
	switch {
	case d.pkg == "raft":
		level = hclog.Info
	case d.pkg == "config" && strings.HasPrefix(format, "mutual TLS disabled"):
		level = hclog.Debug // of dragonboat's own transport, which ours replaces
	}
	d.log(logger.WARNING, level, format, args)
}

func (d *dragonboatLogger) Errorf(format string, args ...any) {
	d.log(logger.ERROR, hclog.Error, format, args)
}

// Panicf logs and panics. dragonboat's code behind a call of it assumes that it did not return.
func (d *dragonboatLogger) Panicf(format string, args ...any) {
	d.log(logger.CRITICAL, hclog.Error, "panic: "+format, args)
	panic(fmt.Sprintf(format, args...))
}

func (d *dragonboatLogger) log(theirs logger.LogLevel, ours hclog.Level, format string, args []any) {
	if int32(theirs) <= d.limit.Load() {
		d.router.log(ours, d.pkg, format, args)
	}
}
