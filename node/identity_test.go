package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// realConfig is of a node with a directory on disk and a socket on loopback.
func realConfig(dir string) node.Config {
	return node.Config{Name: "n", Dir: dir, Bind: "127.0.0.1:0", Bootstrap: 1, Shards: 1, ElectionTimeout: 300 * time.Millisecond, Logger: hclog.NewNullLogger()}
}

// openReal opens a node that is closed when the test ends.
func openReal(t *testing.T, c node.Config) *node.Node {
	t.Helper()
	n, err := node.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { closeReal(t, n) })
	return n
}

func closeReal(t *testing.T, n *node.Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// usedDir is the directory of a node that founded a cluster and was closed.
func usedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	n := openReal(t, realConfig(dir))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		t.Fatalf("ready: %v", err)
	}
	closeReal(t, n)
	return dir
}

// editIdentity changes fields of node.json.
func editIdentity(t *testing.T, dir string, change func(map[string]any)) {
	t.Helper()
	name := filepath.Join(dir, "node.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, string(b))
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A badDir is a directory that Open must refuse, made of a good one, and parts of the error that says so.
type badDir struct {
	spoil func(t *testing.T, dir string)
	want  []string
}

func setIdentity(key string, value any) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		editIdentity(t, dir, func(m map[string]any) { m[key] = value })
	}
}

func badDirs(other string) map[string]badDir {
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "node.json"), content) }
	}
	return map[string]badDir{
		"empty identity":     {write(""), []string{"node.json is damaged", "restore it"}},
		"garbage identity":   {write("\x00\xff{{{"), []string{"node.json is damaged", "restore it"}},
		"truncated identity": {write(`{"format": 1, "id": "`), []string{"node.json is damaged", "restore it"}},
		"no id":              {setIdentity("id", ""), []string{"no valid id", "restore it"}},
		"bad id":             {setIdentity("id", "../../etc"), []string{"no valid id", "restore it"}},
		"garbage plan":       {setIdentity("plan", map[string]any{"nodes": 7}), []string{"damaged plan", "restore it"}},
		"empty plan":         {setIdentity("plan", map[string]any{}), []string{"damaged plan", "restore it"}},
		"founded, no plan":   {setIdentity("plan", nil), []string{"damaged plan", "restore it"}},
		"newer layout":       {setIdentity("format", 2), []string{"layout 2", "up to 1", "run the newer binary"}},
		"newer cluster":      {setIdentity("newest", 99), []string{"version 99", "run the newer binary"}},
		"identity lost":      {remove("node.json"), []string{"no node.json", "restore the file"}},
		"state lost":         {remove("state"), []string{"state", "restore the whole directory"}},
		"state emptied":      {empty("state"), []string{"state", "restore the whole directory"}},
		"state garbage":      {garbage("state"), []string{"state", "restore the whole directory"}},
		"in use":             {func(t *testing.T, dir string) { openReal(t, realConfig(dir)) }, []string{"directory is in use", "stop the other process"}},
		"in use by a copy": {func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "COPIED"), "")
		}, []string{"directory is in use", "one of two copies", "delete the file COPIED"}},
		"identity is a directory": {func(t *testing.T, dir string) {
			remove("node.json")(t, dir)
			if err := os.Mkdir(filepath.Join(dir, "node.json"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{"node.json"}},
		"another's state": {replace("state", other), []string{"Config.Dir = ", "its state is node", "restore the whole directory"}},
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func empty(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		remove(name)(t, dir)
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// replace puts another directory's name in the place of this one's.
func replace(name, other string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		remove(name)(t, dir)
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(other, name))); err != nil {
			t.Fatal(err)
		}
	}
}

// garbage overwrites every file below name.
func garbage(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		err := filepath.WalkDir(filepath.Join(dir, name), func(p string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != "LOCK" {
				writeFile(t, p, strings.Repeat("garbage ", 100))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that is corrupt, of another node or cluster or of a newer binary, in use or marked as a copy gives one clear error at Open
// within a second, and nothing is left behind: neither the lock nor the port. An empty one is a new node's (case 119).
func TestCase119_WrongDirectory(t *testing.T) {
	good, other := usedDir(t), usedDir(t)
	free := openReal(t, realConfig(t.TempDir()))
	addr := free.Addr()
	closeReal(t, free)
	for name, b := range badDirs(other) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			b.spoil(t, dir)
			c := realConfig(dir)
			c.Bind = addr
			fastest := time.Hour
			for range 3 { // the next finds nothing locked or bound by the one before
				began := time.Now()
				n, err := node.Open(t.Context(), c)
				if err == nil {
					closeReal(t, n)
					t.Fatal("open: got nil, want an error")
				}
				fastest = min(fastest, time.Since(began))
				if locked := strings.HasPrefix(name, "in use"); errors.Is(err, node.ErrDirLocked) != locked || errors.Is(err, node.ErrInvalid) && locked {
					t.Errorf("open: got %v", err)
				}
				for _, part := range append(b.want, dir) {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("open: got %q, want something with %q", err, part)
					}
				}
			}
			if fastest > time.Second { // a busy machine may hold up one or two
				t.Errorf("open took %v at least, want 1 s at most", fastest)
			}
		})
	}
	c := realConfig(good)
	c.Bind = addr
	was := openReal(t, c) // the copies left it alone
	closeReal(t, was)
	c.Dir = filepath.Join(t.TempDir(), "empty")
	if n := openReal(t, c); n.ID() == was.ID() || n.Status().Incarnation != 1 {
		t.Errorf("an empty directory at a known address is node %s, start %d", n.ID(), n.Status().Incarnation)
	}
}

// A Raft log that is lost, damaged or another cluster's is found when the replicas start: the node fails with a clear error, and its
// process lives (case 119).
func TestCase119_WrongLog(t *testing.T) {
	good, other := usedDir(t), usedDir(t)
	for name, spoil := range map[string]func(*testing.T, string){"lost": remove("raft"), "emptied": empty("raft"), "garbage": garbage("raft"), "another's": replace("raft", other)} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			spoil(t, dir)
			n, err := node.Open(t.Context(), realConfig(dir))
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			select {
			case <-n.Done():
			case <-time.After(20 * time.Second):
				t.Error("the node runs without its log")
			}
			for _, part := range []string{dir, "restore the whole directory"} {
				if err := n.Healthy(); err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the node's error: got %v, want something with %q", err, part)
				}
			}
			closeReal(t, n)
		})
	}
}

// A directory that cannot be made or written is refused with its name and what to do.
func TestOpen_DirUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	for name, dir := range map[string]string{"is a file": file, "below a file": file + "/dir", "not creatable": "/proc/none/dir"} {
		_, err := node.Open(t.Context(), realConfig(dir))
		if !errors.Is(err, node.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "Config.Dir = ") || !strings.Contains(fmt.Sprint(err), dir) {
			t.Errorf("%s: got %v, want ErrInvalid with Config.Dir", name, err)
		}
	}
}

// A directory is one node's at a time, in one process and in several.
func TestOpen_DirLocked(t *testing.T) {
	if dir := os.Getenv("OARLOCK_TEST_DIR"); dir != "" { // the other process
		_, err := node.Open(t.Context(), realConfig(dir))
		if !errors.Is(err, node.ErrDirLocked) || !strings.Contains(err.Error(), dir) {
			t.Errorf("open in another process: got %v, want ErrDirLocked with the directory", err)
		}
		return
	}
	dir := t.TempDir()
	n := openReal(t, realConfig(dir))
	_, err := node.Open(t.Context(), realConfig(dir))
	if !errors.Is(err, node.ErrDirLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open again: got %v, want ErrDirLocked with the directory", err)
	}
	if err := node.ForgetPlan(dir); !errors.Is(err, node.ErrDirLocked) {
		t.Errorf("forget plan: got %v, want ErrDirLocked", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpen_DirLocked$")
	cmd.Env = append(os.Environ(), "OARLOCK_TEST_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("other process: %v\n%s", err, out)
	}
	closeReal(t, n)
	openReal(t, realConfig(dir))
}

// An address that cannot be had is told with its setting; the directory is free again.
func TestOpen_BadAddress(t *testing.T) {
	t.Parallel()
	taken := openReal(t, realConfig(t.TempDir()))
	dir := t.TempDir()
	for name, bind := range map[string]string{"in use": taken.Addr(), "not resolvable": "none.invalid:0", "not ours": "192.0.2.1:0"} {
		c := realConfig(dir)
		c.Bind, c.Insecure = bind, true
		_, err := node.Open(t.Context(), c)
		if err == nil || errors.Is(err, node.ErrDirLocked) || !strings.Contains(err.Error(), fmt.Sprintf("Config.Bind = %q", bind)) {
			t.Errorf("%s: got %v, want an error with Config.Bind", name, err)
		}
	}
	openReal(t, realConfig(dir))
}

// Files that change the Raft library's settings behind our back are warned of.
func TestOpen_SettingsFile(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "dragonboat-soft-settings.json", "{}")
	var book logbook
	c := realConfig(t.TempDir())
	c.Logger = book.logger(hclog.Warn)
	openReal(t, c)
	book.wantLog(t, "dragonboat-soft-settings.json")
}
