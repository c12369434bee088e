package nodetest

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	raftvfs "github.com/lni/vfs"
)

// diskSize is how large the disks say they are.
const diskSize = 1 << 40

// logFS is the file system of a node's Raft log. The one in memory does not tell its size, which the log's store asks for.
type logFS struct {
	*raftvfs.MemFS
	open *openFiles
}

func (f logFS) Create(name string) (raftvfs.File, error) {
	file, err := f.MemFS.Create(name)
	return f.count(name, file, err)
}

func (f logFS) Open(name string, o ...raftvfs.OpenOption) (raftvfs.File, error) {
	file, err := f.MemFS.Open(name, o...)
	return f.count(name, file, err)
}

func (f logFS) OpenDir(name string) (raftvfs.File, error) {
	file, err := f.MemFS.OpenDir(name)
	return f.count(name, file, err)
}

func (f logFS) OpenForAppend(name string) (raftvfs.File, error) {
	file, err := f.MemFS.OpenForAppend(name)
	return f.count(name, file, err)
}

func (f logFS) ReuseForWrite(from, to string) (raftvfs.File, error) {
	file, err := f.MemFS.ReuseForWrite(from, to)
	return f.count(to, file, err)
}

func (f logFS) Lock(name string) (io.Closer, error) {
	l, err := f.MemFS.Lock(name)
	if err != nil {
		return nil, err
	}
	return &counted{l, f.open.opened(name)}, nil
}

func (logFS) GetDiskUsage(string) (raftvfs.DiskUsage, error) {
	return raftvfs.DiskUsage{AvailBytes: diskSize, TotalBytes: diskSize}, nil
}

// stateFS is the file system of a node's state, with the disk's faults.
type stateFS struct {
	vfs.FS
	f *faults
}

func (s *stateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.f.write(); err != nil {
		return nil, err
	}
	f, err := s.FS.Create(name, c)
	return s.wrap(name, f, err)
}

func (s *stateFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, o...)
	return s.wrap(name, f, err)
}

func (s *stateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, o...)
	return s.wrap(name, f, err)
}

func (s *stateFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	return s.wrap(name, f, err)
}

func (s *stateFS) Lock(name string) (io.Closer, error) {
	l, err := s.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	return &counted{l, s.f.d.open.opened(name)}, nil
}

func (s *stateFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.f.write(); err != nil {
		return nil, err
	}
	f, err := s.FS.ReuseForWrite(from, to, c)
	return s.wrap(to, f, err)
}

func (s *stateFS) Rename(from, to string) error {
	if err := s.f.write(); err != nil {
		return err
	}
	return s.FS.Rename(from, to)
}

func (s *stateFS) Link(from, to string) error {
	if err := s.f.write(); err != nil {
		return err
	}
	return s.FS.Link(from, to)
}

func (s *stateFS) Unwrap() vfs.FS { return s.FS }

// stateFile is an open file of a stateFS.
type stateFile struct {
	vfs.File
	f      *faults
	closed func()
}

func (s *stateFile) Close() error {
	s.closed()
	return s.File.Close()
}

func (s *stateFile) Write(b []byte) (int, error) {
	if err := s.f.write(); err != nil {
		return 0, err
	}
	return s.File.Write(b)
}

func (s *stateFile) WriteAt(b []byte, off int64) (int, error) {
	if err := s.f.write(); err != nil {
		return 0, err
	}
	return s.File.WriteAt(b, off)
}

func (s *stateFile) Sync() error {
	if err := s.f.sync(); err != nil {
		return err
	}
	s.f.d.gate.RLock()
	defer s.f.d.gate.RUnlock()
	return s.File.Sync()
}

func (s *stateFile) SyncData() error {
	if err := s.f.sync(); err != nil {
		return err
	}
	s.f.d.gate.RLock()
	defer s.f.d.gate.RUnlock()
	return s.File.SyncData()
}

func (s *stateFile) SyncTo(length int64) (full bool, err error) {
	if err := s.f.sync(); err != nil {
		return false, err
	}
	s.f.d.gate.RLock()
	defer s.f.d.gate.RUnlock()
	return s.File.SyncTo(length)
}
