package nodetest

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	raftvfs "github.com/lni/vfs"
)

// checkLeaks: a closed node leaves no port, no file and no goroutine behind. It is called when all are closed and the gossip library's
// goroutines have had their time. Files of a store that failed stay open until the process ends.
func (k *checker) checkLeaks() {
	for addr := range k.c.net.Stats() {
		k.failf("after Close of all nodes a port is open: %s", addr)
	}
	for _, m := range k.c.all() {
		if names := m.disk.open.names(); len(names) > 0 && !m.disk.failed() {
			k.failf("after Close of node %d these files are open: %s", m.i, names)
		}
	}
	for _, g := range leftGoroutines() {
		k.failf("after Close of all nodes a goroutine is left: %s", g)
	}
}

// leftGoroutines are the stacks of this bubble's goroutines, other than the caller's, that are in the code of a node.
func leftGoroutines() []string {
	own := make([]byte, 1<<10)
	own = own[:runtime.Stack(own, false)]
	head, _, _ := strings.Cut(string(own), "\n")
	bubble := regexp.MustCompile(`synctest bubble \d+`).FindString(head)
	if bubble == "" {
		return nil
	}
	var left []string
	id, _, _ := strings.Cut(head, " [")
	for g := range strings.SplitSeq(string(allStacks()), "\n\n") {
		h, _, _ := strings.Cut(g, "\n")
		if strings.Contains(h, bubble+"]") && !strings.HasPrefix(h, id+" [") && inNode(g) {
			left = append(left, g)
		}
	}
	return left
}

func allStacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return b[:n]
		}
	}
}

// inNode says whether a stack has a function of the library, or of a library below it, in it.
func inNode(stack string) bool {
	const ours = "github.com/oarlock/oarlock/"
	for line := range strings.SplitSeq(stack, "\n") {
		for _, p := range []string{ours + "node.", ours + "node/internal/", ours + "fsm", ours + "membership", ours + "transport",
			"github.com/lni/dragonboat/", "github.com/cockroachdb/pebble", "github.com/hashicorp/memberlist"} {
			if strings.HasPrefix(line, p) {
				return true
			}
		}
	}
	return false
}

// openFiles are the files and locks of one disk that are open. It is safe for concurrent use.
type openFiles struct {
	mu sync.Mutex // guards m
	m  map[string]int
}

func (o *openFiles) add(name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.m == nil {
		o.m = map[string]int{}
	}
	if o.m[name] += n; o.m[name] == 0 {
		delete(o.m, name)
	}
}

// opened counts an open file, and returns what to call at its Close.
func (o *openFiles) opened(name string) (closed func()) {
	o.add(name, 1)
	var once sync.Once
	return func() { once.Do(func() { o.add(name, -1) }) }
}

// names are the open files, "" for none.
func (o *openFiles) names() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o.m)) {
		all = append(all, fmt.Sprintf("%s (%d)", name, o.m[name]))
	}
	return strings.Join(all, ", ")
}

// A counted thing is open until its Close.
type counted struct {
	io.Closer
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Closer.Close()
}

// logFile is an open file of a Raft log.
type logFile struct {
	raftvfs.File
	closed func()
}

func (f *logFile) Close() error {
	f.closed()
	return f.File.Close()
}

func (f logFS) count(name string, file raftvfs.File, err error) (raftvfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &logFile{file, f.open.opened(name)}, nil
}

func (s *stateFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &stateFile{File: f, f: s.f, closed: s.f.d.open.opened(name)}, nil
}
