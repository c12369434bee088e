package oarlock_test

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSurface: no exported identifier of the public packages has a type of a dependency in it. The standard library, our
// own packages and go-hclog (Config's Logger, by decision, and nodetest's level for it) may appear.
func TestSurface(t *testing.T) {
	exports := map[string]string{}
	var public []string
	for _, p := range goList(t, "-e", "-export", "-deps", "-json=ImportPath,Export", "./...") {
		exports[p.ImportPath] = p.Export
		if path := strings.TrimPrefix(p.ImportPath, module+"/"); under(path, "node") && !under(path, "node/internal") {
			public = append(public, p.ImportPath)
		}
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range public {
		pkg, err := imp.Import(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, leak := range leaks(pkg) {
			t.Error(leak)
		}
	}
}

// TestSurface_Checker: a dependency's type is found in a parameter, a field, a method, an alias and behind a slice; an
// unexported field and hclog.Logger are left alone.
func TestSurface_Checker(t *testing.T) {
	dep := types.NewPackage("github.com/lni/dragonboat/v4", "dragonboat")
	host := types.NewNamed(types.NewTypeName(0, dep, "NodeHost", nil), types.NewStruct(nil, nil), nil)
	hclog := types.NewPackage("github.com/hashicorp/go-hclog", "hclog")
	logger := types.NewNamed(types.NewTypeName(0, hclog, "Logger", nil), types.NewInterfaceType(nil, nil), nil)

	pkg := types.NewPackage(module+"/node", "node")
	field := func(name string, t types.Type) *types.Var { return types.NewField(0, pkg, name, t, false) }
	sig := func(t types.Type) *types.Signature {
		return types.NewSignatureType(nil, nil, nil, types.NewTuple(types.NewParam(0, pkg, "", t)), nil, false)
	}
	pkg.Scope().Insert(types.NewFunc(0, pkg, "Func", sig(types.NewSlice(types.NewPointer(host)))))
	pkg.Scope().Insert(types.NewFunc(0, pkg, "hidden", sig(host)))
	config := types.NewTypeName(0, pkg, "Config", nil)
	fields := types.NewStruct([]*types.Var{field("Host", host), field("host", host), field("Logger", logger)}, nil)
	named := types.NewNamed(config, fields, nil)
	recv := types.NewParam(0, pkg, "", named)
	named.AddMethod(types.NewFunc(0, pkg, "Method", types.NewSignatureType(recv, nil, nil, types.NewTuple(recv, types.NewParam(0, pkg, "", host)), nil, false)))
	pkg.Scope().Insert(config)
	pkg.Scope().Insert(types.NewTypeName(0, pkg, "Alias", host))

	const what = " mentions github.com/lni/dragonboat/v4.NodeHost"
	want := []string{"node.Alias" + what, "node.Config.Host" + what, "node.Config.Method" + what, "node.Func" + what}
	if diff := cmp.Diff(want, leaks(pkg)); diff != "" {
		t.Error(diff)
	}
}

// leaks lists the exported identifiers of pkg whose types mention a package of a dependency.
func leaks(pkg *types.Package) []string {
	s := &surface{pkg: pkg}
	for _, name := range pkg.Scope().Names() { // sorted
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		at := pkg.Name() + "." + name
		tn, isType := obj.(*types.TypeName)
		named, isNamed := obj.Type().(*types.Named)
		if !isType || !isNamed || tn.IsAlias() {
			s.walk(at, obj.Type())
			continue
		}
		s.members(at, named)
	}
	return s.found
}

// surface walks what a user of pkg can see.
type surface struct {
	pkg   *types.Package
	found []string
}

// members walks a declared type: its definition, then its exported methods.
func (s *surface) members(at string, n *types.Named) {
	s.walk(at, n.Underlying())
	for m := range n.Methods() {
		if m.Exported() {
			s.walk(at+"."+m.Name(), m.Type())
		}
	}
}

// walk looks into t until it meets a named type: one of ours is checked where it is declared, a dependency's is a leak.
func (s *surface) walk(at string, t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		s.walk(at, types.Unalias(t))
	case *types.Named:
		s.named(at, t.Obj())
		for a := range t.TypeArgs().Types() {
			s.walk(at, a)
		}
	case *types.Pointer:
		s.walk(at, t.Elem())
	case *types.Slice:
		s.walk(at, t.Elem())
	case *types.Array:
		s.walk(at, t.Elem())
	case *types.Chan:
		s.walk(at, t.Elem())
	case *types.Map:
		s.walk(at, t.Key())
		s.walk(at, t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			s.walk(at, v.Type())
		}
		for v := range t.Results().Variables() {
			s.walk(at, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				s.walk(at+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			s.walk(at+"."+m.Name(), m.Type())
		}
		for e := range t.EmbeddedTypes() {
			s.walk(at, e)
		}
	}
}

func (s *surface) named(at string, o *types.TypeName) {
	if o.Pkg() == nil { // error, any
		return
	}
	path := o.Pkg().Path()
	std := !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
	if std || under(path, module) || path == "github.com/hashicorp/go-hclog" {
		return
	}
	s.found = append(s.found, fmt.Sprintf("%s mentions %s.%s", at, path, o.Name()))
}
