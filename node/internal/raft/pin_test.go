package raft

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the ownership rules take from dragonboat is not part of its interface, so a newer version may change it without a word.
// These tests read the very source that is compiled in, and fail then: read it again, and change the model with it.

// source parses a file of the dragonboat that go.mod names.
func source(t *testing.T, name string) *ast.File {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lni/dragonboat/v4").Output()
	if err != nil {
		t.Fatalf("find dragonboat's source: %v", err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(name)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// function returns the function or method with that name.
func function(t *testing.T, f *ast.File, name string) *ast.FuncDecl {
	t.Helper()
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == name {
			return fn
		}
	}
	t.Fatalf("dragonboat has no function %s any more", name)
	return nil
}

// names lists what a function calls and selects, in the order of the source.
func names(fn *ast.FuncDecl) []string {
	var list []string
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			list = append(list, s.Sel.Name)
		}
		return true
	})
	return list
}

// In one step of a replica, what changed of (leader, term) is published before any message but a leader's own appends leaves: so a
// proposal or a read that is forwarded in a new term leaves a node that no longer says it leads (the model's mutant
// ForwardedBeforePublished shows what this carries).
func TestDragonboat_PublishesBeforeItForwards(t *testing.T) {
	steps := names(function(t, source(t, "engine.go"), "processSteps"))
	published, sent := slices.Index(steps, "processLeaderUpdate"), slices.Index(steps, "processRaftUpdate")
	if published < 0 || sent < 0 || published > sent {
		t.Errorf("a step publishes at place %d and sends at place %d of %v, want to publish first", published, sent, steps)
	}
	node := source(t, "node.go")
	if got := names(function(t, node, "processRaftUpdate")); !slices.Contains(got, "sendMessages") {
		t.Errorf("processRaftUpdate does %v, want messages sent there", got)
	}
	want := []string{"Type", "Replicate", "Type", "Ping"}
	if got := names(function(t, node, "isFreeOrderMessage")); !slices.Equal(got, want) {
		t.Errorf("messages that are sent before the rest: got %v, want %v", got, want)
	}
	if got := names(function(t, node, "processLeaderUpdate")); !slices.Contains(got, "Store") {
		t.Errorf("processLeaderUpdate does %v, want what GetLeaderID reads stored there", got)
	}
}

// A read is confirmed by any replica that answered, whether or not it is a voter still: with five voters or more a removed one may make
// up a majority that is none. So View carries the config-change id of such groups. Once dragonboat asks who answers, that may go.
func TestDragonboat_CountsRemovedVoters(t *testing.T) {
	confirm := names(function(t, source(t, "internal/raft/readindex.go"), "confirm"))
	handle := names(function(t, source(t, "internal/raft/raft.go"), "handleReadIndexLeaderConfirmation"))
	for _, asks := range []string{"remotes", "votingMembers", "witnesses"} {
		if slices.Contains(confirm, asks) || slices.Contains(handle, asks) {
			t.Errorf("dragonboat looks at %s when it counts a read's confirmations: read it again", asks)
		}
	}
}
