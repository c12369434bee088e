package raft

import (
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lni/dragonboat/v4/raftpb"
	raftvfs "github.com/lni/vfs"
)

// flagFile is dragonboat's record of who a directory belongs to: 8 bytes of a hash, then a marshalled RaftDataStatus.
const flagFile = "dragonboat.ds"

// adoptHostname makes the log in dir usable after the machine was renamed. Dragonboat keeps the log in a folder of the host's name
// and refuses another name that is on record; but a node's identity is its UUID. The record's name is removed first, then the
// folder is renamed, so a crash in between leaves what the next start completes.
func adoptHostname(fs raftvfs.FS, dir, host string) error {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	if slices.Contains(names, flagFile) {
		if err := forgetHostname(fs, filepath.Join(dir, flagFile), host); err != nil {
			return err
		}
	}
	var folders []string
	for _, name := range names {
		if info, err := fs.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			folders = append(folders, name)
		}
	}
	switch {
	case len(folders) == 0 || len(folders) == 1 && folders[0] == host:
		return nil
	case len(folders) > 1:
		return fmt.Errorf("%s has the logs of several machines: %q: remove those that are not this node's", dir, folders)
	}
	if err := fs.Rename(filepath.Join(dir, folders[0]), filepath.Join(dir, host)); err != nil {
		return fmt.Errorf("rename %s to %s: %w", filepath.Join(dir, folders[0]), host, err)
	}
	return syncDir(fs, dir)
}

// forgetHostname removes a host name other than host from the record.
func forgetHostname(fs raftvfs.FS, name, host string) error {
	f, err := fs.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	var s raftpb.RaftDataStatus
	if len(b) < 8 || string(flagHash(b[8:])) != string(b[:8]) || s.Unmarshal(b[8:]) != nil {
		return fmt.Errorf("%w: %s is damaged", ErrOpenFailed, name)
	}
	if s.Hostname == "" || strings.EqualFold(s.Hostname, host) {
		return nil
	}
	s.Hostname = ""
	body, err := s.Marshal()
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	tmp := name + ".tmp"
	if err := writeFile(fs, tmp, append(flagHash(body), body...)); err != nil {
		return err
	}
	if err := fs.Rename(tmp, name); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	return syncDir(fs, filepath.Dir(name))
}

func flagHash(b []byte) []byte {
	h := md5.Sum(b)
	return append([]byte(nil), h[8:]...)
}

func writeFile(fs raftvfs.FS, name string, b []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func syncDir(fs raftvfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
