package nodetest

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	raftvfs "github.com/lni/vfs"
)

// diskSize is how large the disks say they are.
const diskSize = 1 << 40

// logFS is the file system of a node's Raft log. The one in memory does not tell its size, which the log's store asks for.
type logFS struct{ *raftvfs.MemFS }

func (logFS) GetDiskUsage(string) (raftvfs.DiskUsage, error) {
	return raftvfs.DiskUsage{AvailBytes: diskSize, TotalBytes: diskSize}, nil
}

// stateFS is the file system of a node's state, with the disk's faults.
type stateFS struct {
	vfs.FS
	f *faults
}

func (s *stateFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &stateFile{File: f, f: s.f}, nil
}

func (s *stateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.f.write(); err != nil {
		return nil, err
	}
	return s.wrap(s.FS.Create(name, c))
}

func (s *stateFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return s.wrap(s.FS.Open(name, o...))
}

func (s *stateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return s.wrap(s.FS.OpenReadWrite(name, c, o...))
}

func (s *stateFS) OpenDir(name string) (vfs.File, error) { return s.wrap(s.FS.OpenDir(name)) }

func (s *stateFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.f.write(); err != nil {
		return nil, err
	}
	return s.wrap(s.FS.ReuseForWrite(from, to, c))
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
	f *faults
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
