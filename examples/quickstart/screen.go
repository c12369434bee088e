//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// A screen prints the story: plain lines, with bold headings on a terminal.
type screen struct {
	out      io.Writer
	terminal bool
	chapter  int
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// title begins a chapter.
func (s *screen) title(format string, args ...any) {
	s.chapter++
	line := fmt.Sprintf("%d. %s", s.chapter, fmt.Sprintf(format, args...))
	if s.terminal {
		line = "\033[1m" + line + "\033[0m"
	}
	s.print("\n" + line + "\n")
}

// say prints a line of the story.
func (s *screen) say(format string, args ...any) {
	s.print("   " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n   ") + "\n")
}

// table prints rows in columns; the first row has the headings.
func (s *screen) table(rows [][]string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		_, _ = w.Write([]byte("     " + strings.Join(r, "\t") + "\n")) // a strings.Builder takes all
	}
	_ = w.Flush()
	s.print(b.String())
}

// print ignores errors: when nobody can read the story, its exit status still tells.
func (s *screen) print(text string) { _, _ = io.WriteString(s.out, text) }
