package fsm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Five replicas of one log, with other numbers of processors, other cuts, crashes, restarts and snapshots, come to the same results for each entry and the
// same state. A map that is iterated in its own order anywhere in Apply has another one on each of them (case 67).
func TestCase067_SameLogSameResults(t *testing.T) {
	ref, es, want := generate(t, 67, 1500)
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for i, procs := range []int{1, 2, 4, 8, 16} {
		runtime.GOMAXPROCS(procs)
		p := &replica{t: t, r: rand.New(rand.NewPCG(67, uint64(i))), id: 1}
		p.open(vfs.NewCrashableMem())
		p.follow(ref, es, want)
		p.close()
	}
}

// The package has no clock, no randomness, no goroutine and nothing of the operating system: what it does follows from the log alone (case 67).
func TestCase067_NothingButTheLog(t *testing.T) {
	imports := []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "runtime", "syscall", "maps"}
	clocks := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		looked++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); slices.Contains(imports, path) {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%v: a goroutine", set.Position(x.Pos()))
			case *ast.SelectorExpr:
				if pkg, ok := x.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clocks, x.Sel.Name) {
					t.Errorf("%v: time.%s", set.Position(x.Pos()), x.Sel.Name)
				}
			}
			return true
		})
	}
	if looked < 20 {
		t.Errorf("looked at %d files only", looked)
	}
}
