package logbridge

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/go-hclog"
)

// ErrStoreFailed says that the store met a failure it cannot go on after, such as a failed sync of its log. What was asked of
// it may or may not have happened.
var ErrStoreFailed = errors.New("store failed")

// A PebbleLogger is the logger of one pebble store. It is safe for concurrent use. Make one for each Open of a store.
//
// # What Fatalf does, and why
//
// pebble calls Fatalf where it cannot go on: a write or sync of its log or manifest failed, or an invariant broke. Its own
// logger exits the process, which a library must not. Returning is no choice either: the code behind assumes that Fatalf did
// not return, and DB.Apply would report a write as durable whose sync has just failed. Ending the goroutine by
// runtime.Goexit runs its deferred functions, and in places pebble has unlocked a mutex for the moment that a deferred
// function up the stack unlocks again; the Go runtime ends the process for that, and nothing can recover it.
//
// So Fatalf logs, reports the first failure, and blocks: with every lock held as it was, the store stands still and nothing
// more is acknowledged. Release ends the blocked goroutines by Goexit. It is for the end of the node, when nobody calls the
// store any more, and for tests, which must leave no goroutine behind.
//
// A store that has failed must not be used, nor closed: DB.Close waits for the flush that will not end. The goroutines and
// files that it holds then stay until the process ends. Callers that must not be stuck call the store inside Do.
type PebbleLogger struct {
	logger  hclog.Logger
	onFatal func(error)

	once     sync.Once
	err      error // set before failed is closed
	failed   chan struct{}
	releases sync.Once
	released chan struct{}
}

var _ pebble.Logger = (*PebbleLogger)(nil)

// Pebble returns a logger for one store. onFatal is called once, at the first failure, on the goroutine that met it, with
// pebble's locks held: it may only note the error and signal, never call the store or wait. It may be nil.
func Pebble(l hclog.Logger, onFatal func(error)) *PebbleLogger {
	return &PebbleLogger{
		logger:   l.Named("pebble"),
		onFatal:  onFatal,
		failed:   make(chan struct{}),
		released: make(chan struct{}),
	}
}

// Infof logs pebble's account of its work as Debug.
func (p *PebbleLogger) Infof(format string, args ...any) {
	if p.logger.IsDebug() {
		p.logger.Debug(fmt.Sprintf(format, args...))
	}
}

// Errorf logs as Error.
func (p *PebbleLogger) Errorf(format string, args ...any) {
	p.logger.Error(fmt.Sprintf(format, args...))
}

// Fatalf reports the failure and never returns; see the type.
func (p *PebbleLogger) Fatalf(format string, args ...any) {
	p.fail(fmt.Errorf("%w: %s", ErrStoreFailed, fmt.Sprintf(format, args...)))
	<-p.released
	runtime.Goexit()
}

// Failed is closed at the first failure. Err then tells it.
func (p *PebbleLogger) Failed() <-chan struct{} { return p.failed }

// Err is nil until the store failed, then the first failure, which is an ErrStoreFailed.
func (p *PebbleLogger) Err() error {
	select {
	case <-p.failed:
		return p.err
	default:
		return nil
	}
}

// Do runs call, which uses the store, and returns its error. If the store has failed, or fails before call returns, Do
// returns the failure at once and leaves call behind, blocked until Release. So a goroutine that is not ours, such as one of
// dragonboat's workers, is never stuck in a failed store. What call was doing may or may not have happened; it must touch
// nothing that its caller goes on to use after an error.
func (p *PebbleLogger) Do(call func() error) error {
	if err := p.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // stops when call returns or, after a failure, at Release; Do waits for it otherwise
		done <- call()
	}()
	select {
	case err := <-done:
		if failed := p.Err(); failed != nil {
			return failed // it met the failure, whatever it returned
		}
		return err
	case <-p.failed:
		return p.err
	}
}

// Release ends the goroutines that the failed store blocked. Call it when nothing uses the store any more. It is idempotent
// and does not wait for them.
func (p *PebbleLogger) Release() { p.releases.Do(func() { close(p.released) }) }

// Events returns a listener for the store's Options. Without it pebble calls Fatalf when a read meets a damaged block, on
// the reader's goroutine; with it the damage is reported as a failure and the read returns its error. Slow disks and stalls
// are logged as warnings.
func (p *PebbleLogger) Events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { p.logger.Error("background work of the store failed", "err", err) },
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			p.fail(fmt.Errorf("%w: %s", ErrStoreFailed, i))
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			p.logger.Warn("disk is slow", "op", i.OpType.String(), "path", i.Path, "took", i.Duration)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { p.logger.Warn("store stalls writes", "reason", i.Reason) },
		WriteStallEnd:   func() { p.logger.Debug("store goes on writing") },
	}
}

func (p *PebbleLogger) fail(err error) {
	p.logger.Error("store failed", "err", err)
	p.once.Do(func() {
		p.err = err
		if p.onFatal != nil {
			p.onFatal(err)
		}
		close(p.failed) // last: who sees the failure knows that it is reported
	})
}
