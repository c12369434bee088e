//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme_Program: the program in the project's README compiles and runs as it stands there, on a free port, and a second
// run finds what the first one wrote and gets a higher token (case 63).
func TestReadme_Program(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	program, _, ok := strings.Cut(rest, "```\n")
	if !ok || !strings.Contains(program, `"127.0.0.1:7400"`) {
		t.Fatalf("README.md has no Go program that binds 127.0.0.1:7400: %q", program)
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(strings.Replace(program, ":7400", ":0", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var got []string
	for range 2 {
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Dir = dir
		var log strings.Builder
		cmd.Stderr = &log
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("run: %v\n%s%s", err, out, &log)
		}
		got = append(got, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	}
	tokens := regexp.MustCompile(`^locked under token (\d+)$`)
	var first, second string
	if len(got) == 4 && tokens.MatchString(got[0]) && tokens.MatchString(got[2]) {
		first, second = tokens.FindStringSubmatch(got[0])[1], tokens.FindStringSubmatch(got[2])[1]
	}
	if len(second) < len(first) || len(second) == len(first) && second <= first {
		t.Errorf("tokens: got %q, then %q, want a higher one", first, second)
	}
	want := []string{"invoices/42 is paid, version 1", "invoices/42 is paid, version 2"}
	if len(got) != 4 || !cmp.Equal(want, []string{got[1], got[3]}) {
		t.Errorf("got %q, want records %q", got, want)
	}
}
