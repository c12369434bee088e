package raft

import (
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"
	raftvfs "github.com/lni/vfs"
)

// writeRecord makes a log as dragonboat lays it out: a record, and a folder of the host's name.
func writeRecord(t *testing.T, fs raftvfs.FS, dir, host string) {
	t.Helper()
	if err := fs.MkdirAll(filepath.Join(dir, host, "00000000000000000007"), 0o755); err != nil {
		t.Fatal(err)
	}
	status := raftpb.RaftDataStatus{Hostname: host, DeploymentId: 7}
	body, err := status.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(fs, filepath.Join(dir, flagFile), append(flagHash(body), body...)); err != nil {
		t.Fatal(err)
	}
}

// recorded is the host name on record.
func recorded(t *testing.T, fs raftvfs.FS, dir string) string {
	t.Helper()
	f, err := fs.Open(filepath.Join(dir, flagFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	var s raftpb.RaftDataStatus
	if err := s.Unmarshal(b[8:]); err != nil || s.DeploymentId != 7 {
		t.Fatalf("record: %+v, %v", s, err)
	}
	return s.Hostname
}

// A log of a machine that was renamed is found under the new name, also if only letters' case changed, and dragonboat's record no
// longer names another; a second run changes nothing; a machine that kept its name keeps everything.
func TestAdoptHostname(t *testing.T) {
	for host, record := range map[string]string{"new": "", "old": "old", "OLD": "old"} {
		t.Run(host, func(t *testing.T) {
			fs := raftvfs.NewStrictMem()
			writeRecord(t, fs, "/raft", "old")
			for range 2 {
				if err := adoptHostname(fs, "/raft", host); err != nil {
					t.Fatalf("adopt %s: %v", host, err)
				}
			}
			names, err := fs.List("/raft")
			slices.Sort(names)
			want := []string{flagFile, host}
			slices.Sort(want)
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("directory: got %v, %v, want %v", names, err, want)
			}
			if got := recorded(t, fs, "/raft"); got != record {
				t.Errorf("record: got %q, want %q", got, record)
			}
		})
	}
}

// A directory that does not exist yet is no error; a damaged record is one, and so are the logs of two machines.
func TestAdoptHostname_Unusual(t *testing.T) {
	fs := raftvfs.NewStrictMem()
	if err := adoptHostname(fs, "/none", "h"); err != nil {
		t.Errorf("missing directory: %v", err)
	}
	writeRecord(t, fs, "/two", "a")
	writeRecord(t, fs, "/two", "b")
	if err := adoptHostname(fs, "/two", "b"); err == nil {
		t.Error("logs of two machines: got nil, want an error")
	}
	writeRecord(t, fs, "/raft", "h")
	if err := writeFile(fs, "/raft/"+flagFile, []byte("not a record")); err != nil {
		t.Fatal(err)
	}
	if err := adoptHostname(fs, "/raft", "h"); err == nil {
		t.Error("damaged record: got nil, want an error")
	}
}
