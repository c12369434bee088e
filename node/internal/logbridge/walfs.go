package logbridge

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS puts the store's file system below it, so that a failed write of the store's own log becomes the store's failure instead of the
// process's end: pebble panics when it cannot close or make such a file, at a point where a deferred unlock turns the panic
// into a fatal error of the runtime that nothing recovers.
//
// The first failure is reported as by Fatalf. From then on nothing is written to any log file and pebble is told that all went well, so
// it never comes to that point; Do tells its callers of the failure instead, so nothing is acknowledged. On disk the log ends where
// it failed: what the next start reads is a prefix.
func (p *PebbleLogger) FS(fs vfs.FS) vfs.FS { return &walFS{FS: fs, p: p} }

type walFS struct {
	vfs.FS
	p *PebbleLogger
}

func isWAL(name string) bool { return strings.HasSuffix(name, ".log") }

func (f *walFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if !isWAL(name) {
		return file, err
	}
	if err != nil {
		f.p.fail(fmt.Errorf("%w: %w", ErrStoreFailed, err))
		mem, merr := vfs.NewMem().Create("lost.log", vfs.WriteCategoryUnspecified)
		if merr != nil {
			return nil, merr
		}
		file = mem
	}
	return &walFile{File: file, p: f.p}, nil
}

// Create makes a file. It cannot fail for a log file.
func (f *walFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

// ReuseForWrite makes a file out of an old one. It cannot fail for a log file.
func (f *walFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(name, file, err)
}

// OpenDir opens a directory, whose syncs fail as a log file's do: new log files need them.
func (f *walFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &walFile{File: file, p: f.p}, nil
}

// Unwrap is the file system below.
func (f *walFS) Unwrap() vfs.FS { return f.FS }

// walFile is a log file, or the directory with the log files.
type walFile struct {
	vfs.File
	p *PebbleLogger
}

// do runs call unless the store has failed, and makes an error of it the store's failure.
func (f *walFile) do(call func() error) {
	if f.p.Err() != nil {
		return
	}
	if err := call(); err != nil {
		f.p.fail(fmt.Errorf("%w: %w", ErrStoreFailed, err))
	}
}

// Write writes, or after a failure does as if.
func (f *walFile) Write(b []byte) (int, error) {
	f.do(func() error {
		_, err := f.File.Write(b)
		return err
	})
	return len(b), nil
}

// Preallocate reserves space, which need not succeed.
func (f *walFile) Preallocate(offset, length int64) error {
	f.do(func() error { return f.File.Preallocate(offset, length) })
	return nil
}

// Sync syncs, or after a failure does as if.
func (f *walFile) Sync() error {
	f.do(f.File.Sync)
	return nil
}

// SyncData syncs, or after a failure does as if.
func (f *walFile) SyncData() error {
	f.do(f.File.SyncData)
	return nil
}

// SyncTo syncs, or after a failure does as if.
func (f *walFile) SyncTo(length int64) (full bool, err error) {
	full = true
	f.do(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, nil
}

// Close closes the file.
func (f *walFile) Close() error {
	if err := f.File.Close(); err != nil && f.p.Err() == nil {
		f.p.fail(fmt.Errorf("%w: %w", ErrStoreFailed, err))
	}
	return nil
}
