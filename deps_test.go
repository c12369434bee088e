package oarlock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/oarlock/oarlock"

// listed is what `go list` says of one package, as far as the rules need it.
type listed struct {
	ImportPath, Dir, Export            string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// goList runs `go list` on patterns with the given extra flags.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		all = append(all, p)
	}
}

// TestLayers: who may import whom (DESIGN: layers), for the code of every package and for its tests.
func TestLayers(t *testing.T) {
	for _, p := range goList(t, "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...") {
		from := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if why := forbidden(from, to); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, to, why)
			}
		}
		for _, to := range p.Imports {
			if why := impure(from, to); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, to, why)
			}
		}
	}
}

// TestLayers_Checker: each rule of the checker fails on an import that breaks it and lets the allowed one pass.
func TestLayers_Checker(t *testing.T) {
	const dragonboat, pebble = "github.com/lni/dragonboat/v4", "github.com/cockroachdb/pebble"
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"transport", module + "/transport/memnet", true},
		{"transport/rpc", module + "/transport", true},
		{"transport", module + "/membership", false},
		{"transport/memnet", module + "/fsm", false},
		{"membership", module + "/transport/memnet", true},
		{"membership", module + "/membership/memberpb", true},
		{"membership", module + "/fsm", false},
		{"membership", module + "/node", false},
		{"membership", dragonboat, false},
		{"fsm", module + "/fsm/fsmpb", true},
		{"fsm", module + "/transport", false},
		{"fsm", pebble + "/v2", true},
		{"fsm", pebble + "/v2/vfs", true},
		{"fsm", pebble, false},
		{"fsm", dragonboat + "/statemachine", false},
		{"fsm", "net/http", false},
		{"node/internal/owner", module + "/fsm", true},
		{"node/internal/owner", module + "/node/internal/env", false},
		{"node/internal/owner", "time", true},
		{"node/internal/owner", "sync/atomic", true},
		{"node/internal/owner", "sync", false},
		{"node/internal/owner", "github.com/hashicorp/go-hclog", false},
		{"node/internal/raftnet", dragonboat + "/raftio", true},
		{"node/internal/raftlog", pebble + "/v2", true},
		{"node", module + "/examples/lock", false},
		{"node", dragonboat, true},
		{"node/fence", dragonboat, false},
		{"node/nodetest", pebble + "/v2", false},
		{"node/nodetest", pebble + "/v2/vfs", true},
		{"examples/lock", module + "/node", true},
		{"examples/lock", module + "/node/fence", true},
		{"examples/lock", module + "/transport", false},
		{"examples/lock", dragonboat, false},
		{"bench", dragonboat, true},
		{"bench", module + "/node", true},
		{"node/internal/raftnet", "github.com/hashicorp/memberlist", false},
		{"transporter", module + "/transport", false},
	} {
		if why := forbidden(c.from, c.to) + impure(c.from, c.to); (why == "") != c.ok {
			t.Errorf("%s imports %s: got %q, want allowed %v", c.from, c.to, why, c.ok)
		}
	}
}

// forbidden says why package from (a path inside the module) may not import to, or "" when it may.
func forbidden(from, to string) string {
	if own, ok := strings.CutPrefix(to, module+"/"); ok {
		return forbiddenOwn(from, own)
	}
	switch {
	case under(to, "github.com/hashicorp/memberlist") && from != "membership":
		return "gossip is membership's"
	case under(to, "github.com/lni/dragonboat/v4") && from != "node" && !under(from, "node/internal") && !under(from, "bench"):
		return "dragonboat stays in node and its adapters"
	case from == "node/nodetest" && under(to, "github.com/cockroachdb/pebble/v2/vfs"): // the disks it sets
	case under(to, "github.com/cockroachdb/pebble/v2"):
		if !under(from, "fsm") && from != "node" && !under(from, "node/internal") && !under(from, "bench") {
			return "pebble stays in fsm, node and its adapters"
		}
	case under(to, "github.com/cockroachdb/pebble"):
		return "our data lives on pebble/v2"
	}
	return ""
}

// impure says why the code of the state machine or of the owner's rules may not import to. Tests of theirs may.
func impure(from, to string) string {
	owner := under(from, "node/internal/owner")
	switch {
	case !owner && !under(from, "fsm"):
	case under(to, "net") || under(to, "os") || to == "syscall" || to == "runtime":
		return "the rules and the state machine have no network and no system"
	case owner && strings.Contains(to, ".") && !under(to, module):
		return "the owner's rules are pure: std and fsm only"
	case owner && (to == "sync" || to == "context"):
		return "the owner's rules never wait"
	}
	return ""
}

// forbiddenOwn is forbidden between two packages of ours, both named inside the module.
func forbiddenOwn(from, to string) string {
	allowed := map[string][]string{
		"transport":           {"transport"},
		"membership":          {"membership", "transport"},
		"fsm":                 {"fsm"},
		"node/internal/owner": {"node/internal/owner", "fsm"},
		"node":                {"node", "membership", "fsm", "transport"},
		"examples":            {"node", "examples"},
		"bench":               {"node", "membership", "fsm", "transport", "bench"},
	}
	layer := ""
	for l := range allowed {
		if under(from, l) && len(l) > len(layer) {
			layer = l
		}
	}
	if layer == "" {
		return "no layer of that name"
	}
	for _, a := range allowed[layer] {
		if under(to, a) {
			return ""
		}
	}
	return fmt.Sprintf("%s may import only %s", layer, strings.Join(allowed[layer], ", "))
}

// under tells whether path is dir or inside it.
func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// TestLayers_GossipFiles: only two files of membership, and their tests, know memberlist.
func TestLayers_GossipFiles(t *testing.T) {
	files, err := filepath.Glob("membership/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range src.Imports {
			if strings.Trim(i.Path.Value, `"`) == "github.com/hashicorp/memberlist" && !strings.HasPrefix(filepath.Base(f), "gossip") {
				t.Errorf("%s imports memberlist: only gossip.go and gossiptransport.go may", f)
			}
		}
	}
}

// TestPure: the state machine and the owner's rules start no goroutine and read no clock.
func TestPure(t *testing.T) {
	for _, p := range goList(t, "-e", "-json=ImportPath,Dir,GoFiles", "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if !under(path, "fsm") && !under(path, "node/internal/owner") {
			continue
		}
		for _, f := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range impurities(t, f, string(src)) {
				t.Errorf("%s/%s", path, at)
			}
		}
	}
}

// TestPure_Checker: the checker finds a goroutine and each way to read the clock, and leaves durations alone.
func TestPure_Checker(t *testing.T) {
	src := "package p\nimport \"time\"\nfunc f(d time.Duration) {\n\tgo f(d)\n\t_ = time.Now()\n\t_ = time.Since\n\t<-time.After(time.Second)\n}\n"
	want := []string{"f.go:4: goroutine", "f.go:5: time.Now", "f.go:6: time.Since", "f.go:7: time.After"}
	if diff := cmp.Diff(want, impurities(t, "f.go", src)); diff != "" {
		t.Error(diff)
	}
}

// impurities lists the goroutines and clock reads of one file.
func impurities(t *testing.T, name, src string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, fmt.Sprintf("%s:%d: goroutine", name, fset.Position(n.Pos()).Line))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				found = append(found, fmt.Sprintf("%s:%d: time.%s", name, fset.Position(n.Pos()).Line, n.Sel.Name))
			}
		}
		return true
	})
	return found
}

// TestFolders: the top level holds the layers and nothing else.
func TestFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !allowedFolder(e.Name()) {
			t.Errorf("top-level folder %q is none of node, membership, fsm, transport, examples, bench", e.Name())
		}
	}
}

// TestFolders_Checker: a folder of another name is found.
func TestFolders_Checker(t *testing.T) {
	for name, want := range map[string]bool{"node": true, ".ci": true, "internal": false, "pkg": false, "cmd": false} {
		if got := allowedFolder(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func allowedFolder(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{"node", "membership", "fsm", "transport", "examples", "bench"}, name)
}
