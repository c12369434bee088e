package raft

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"
	raftvfs "github.com/lni/vfs"
)

// A log of a machine that was renamed is found under the new name, and dragonboat's record no longer names the old one;
// a second run changes nothing; a machine that kept its name keeps everything.
func TestAdoptHostname(t *testing.T) {
	for _, host := range []string{"new", "old", "OLD"} {
		t.Run(host, func(t *testing.T) {
			fs := raftvfs.NewStrictMem()
			folder := filepath.Join("/raft", "old", "00000000000000000007")
			if err := fs.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			status := raftpb.RaftDataStatus{Hostname: "old", DeploymentId: 7}
			body, err := status.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if err := writeFile(fs, filepath.Join(folder, flagFile), append(flagHash(body), body...)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := adoptHostname(fs, "/raft", host); err != nil {
					t.Fatalf("adopt %s: %v", host, err)
				}
			}
			want, gone := "/raft/new", "/raft/old"
			if host != "new" {
				want, gone = gone, want
			}
			if _, err := fs.Stat(gone); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("stat %s: got %v, want not exist", gone, err)
			}
			// What adoptHostname accepts, dragonboat does: the hash matches, and the name is empty or ours.
			if err := forgetHostname(fs, filepath.Join(want, "00000000000000000007", flagFile), host); err != nil {
				t.Errorf("record after the change: %v", err)
			}
		})
	}
}

// A directory that does not exist yet is no error; a damaged record is one.
func TestAdoptHostname_Unusual(t *testing.T) {
	fs := raftvfs.NewStrictMem()
	if err := adoptHostname(fs, "/none", "h"); err != nil {
		t.Errorf("missing directory: %v", err)
	}
	if err := fs.MkdirAll("/raft/h/1", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(fs, "/raft/h/1/"+flagFile, []byte("not a record")); err != nil {
		t.Fatal(err)
	}
	if err := adoptHostname(fs, "/raft", "h"); err == nil {
		t.Error("damaged record: got nil, want an error")
	}
}
