package raft

import (
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lni/dragonboat/v4/raftpb"
	raftvfs "github.com/lni/vfs"
)

// flagFile is dragonboat's record of who a directory belongs to: 8 bytes of a hash, then a marshalled RaftDataStatus.
const flagFile = "dragonboat.ds"

// adoptHostname makes the log in dir usable after the machine was renamed. Dragonboat keeps the log below a folder of the host's
// name and refuses another name that is on record; but a node's identity is its UUID. The record's name is removed first, then the
// folder is renamed, so a crash in between leaves what the next start completes.
func adoptHostname(fs raftvfs.FS, dir, host string) error {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		flags, err := flagFiles(fs, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		for _, f := range flags {
			if err := forgetHostname(fs, f, host); err != nil {
				return err
			}
		}
		if len(flags) == 0 || strings.EqualFold(name, host) {
			continue
		}
		if err := fs.Rename(filepath.Join(dir, name), filepath.Join(dir, host)); err != nil {
			return fmt.Errorf("rename %s to %s: %w", filepath.Join(dir, name), host, err)
		}
		if err := syncDir(fs, dir); err != nil {
			return err
		}
	}
	return nil
}

// flagFiles are dragonboat's records below a host's folder, one for each deployment.
func flagFiles(fs raftvfs.FS, folder string) ([]string, error) {
	info, err := fs.Stat(folder)
	if err != nil || !info.IsDir() {
		return nil, nil // a file of dragonboat's own, such as its lock
	}
	deployments, err := fs.List(folder)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	var flags []string
	for _, d := range deployments {
		f := filepath.Join(folder, d, flagFile)
		if _, err := fs.Stat(f); err == nil {
			flags = append(flags, f)
		}
	}
	return flags, nil
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
		return fmt.Errorf("%s is damaged", name)
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
