package logbridge

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/go-hclog"
)

// failing opens a store in memory on which, once armed, operations of kind on files with part in their path fail.
func failing(t *testing.T, part string, kind errorfs.OpKind, onFatal func(error)) (*pebble.DB, *PebbleLogger, func()) {
	t.Helper()
	var armed atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && op.Kind == kind && strings.Contains(op.Path, part) {
			return errors.New("input/output error")
		}
		return nil
	}))
	l, _ := capture(hclog.Off)
	logger := Pebble(l, onFatal)
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: logger, EventListener: logger.Events()})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("k"), []byte("v"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	return db, logger, func() { armed.Store(true) }
}

// A failed sync of the store's log is reported once, never acknowledged as durable, and neither ends the process nor
// blocks a caller in Do (case 94: a library never ends its host; guarantee 7).
func TestPebbleLogger_Fatalf_LogSync(t *testing.T) {
	var calls atomic.Int32
	db, logger, arm := failing(t, ".log", errorfs.OpFileSyncData, func(error) { calls.Add(1) })
	put := func() error { return db.Set([]byte("k"), []byte("w"), pebble.Sync) }
	if err := logger.Do(put); err != nil {
		t.Fatalf("got %v on a healthy disk, want nil", err)
	}
	if err := logger.Err(); err != nil {
		t.Fatalf("got %v, want no failure yet", err)
	}
	arm()
	for range 3 {
		if err := logger.Do(put); !errors.Is(err, ErrStoreFailed) || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("got %v, want ErrStoreFailed with the cause", err)
		}
	}
	if got := calls.Load(); got != 1 {
		t.Errorf("got %d reports, want 1", got)
	}
	<-logger.Failed()
	logger.Release()
	logger.Release()
}

// A failed write of the manifest happens on a goroutine of pebble's own; it is reported all the same, and the process lives.
func TestPebbleLogger_Fatalf_Manifest(t *testing.T) {
	reported := make(chan error, 1)
	db, logger, arm := failing(t, "MANIFEST", errorfs.OpFileSync, func(err error) { reported <- err })
	arm()
	if err := logger.Do(db.Flush); !errors.Is(err, ErrStoreFailed) {
		t.Errorf("got %v from a flush, want ErrStoreFailed", err)
	}
	if err := <-reported; !errors.Is(err, ErrStoreFailed) {
		t.Errorf("got report %v, want ErrStoreFailed", err)
	}
	logger.Release()
}

// Fatalf never returns to its caller, and Release ends the goroutine through its deferred functions.
func TestPebbleLogger_Release(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := capture(hclog.Off)
		logger := Pebble(l, nil)
		returned, ended := false, make(chan struct{})
		go func() { // stops at Release
			defer close(ended)
			logger.Fatalf("broken: %d", 1)
			returned = true
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the goroutine ended before Release")
		default:
		}
		logger.Release()
		<-ended
		if returned {
			t.Error("Fatalf returned")
		}
		if got, want := logger.Err().Error(), "store failed: broken: 1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A damaged block is a failure and an error of the read that met it; the reader's goroutine goes on.
func TestPebbleLogger_Events_Corruption(t *testing.T) {
	l, _ := capture(hclog.Off)
	logger := Pebble(l, nil)
	logger.Events().DataCorruption(pebble.DataCorruptionInfo{Path: "000007.sst", Details: errors.New("checksum mismatch")})
	if err := logger.Err(); !errors.Is(err, ErrStoreFailed) || !strings.Contains(err.Error(), "000007.sst") {
		t.Errorf("got %v, want ErrStoreFailed that names the file", err)
	}
}
