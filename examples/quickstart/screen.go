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
	fmt.Fprintf(s.out, "\n%s\n", line)
}

// say prints a line of the story.
func (s *screen) say(format string, args ...any) {
	fmt.Fprintf(s.out, "   "+strings.ReplaceAll(format, "\n", "\n   ")+"\n", args...)
}

// table prints rows in columns; the first row has the headings.
func (s *screen) table(rows [][]string) {
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, "     "+strings.Join(r, "\t"))
	}
	w.Flush()
}
