//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/oarlock/oarlock/node"
)

// errNotOnce: a date has no completed run, or two.
var errNotOnce = errors.New("not each date has exactly one completed run")

// maxGap bounds the time in which no date is completed: the death of an owner in the middle of a run, and the machine is slow.
const maxGap = 20 * time.Second

// An audit compares what processes said with what the cluster has on record.
type audit struct {
	dates   int
	tokens  map[string][]node.Token // of the runs that a process said to be completed, by date
	begun   int
	records map[string]record
	last    time.Time     // when the last completion was heard of
	gap     time.Duration // the longest time between two
}

func newAudit(dates int) *audit {
	return &audit{dates: dates, tokens: map[string][]node.Token{}, records: map[string]record{}}
}

func (a *audit) hear(out io.Writer, h heard) {
	switch h.Kind {
	case begins:
		a.begun++
	case completed:
		a.tokens[h.Date] = append(a.tokens[h.Date], h.Token)
		now := time.Now()
		if !a.last.IsZero() {
			a.gap = max(a.gap, now.Sub(a.last))
		}
		a.last = now
		_, _ = fmt.Fprintf(out, "  %s billed by %s under token %d\n", h.Date, h.from.Name, h.Token)
	case recorded:
		for _, r := range h.Records {
			a.records[r.Date] = r
		}
	}
}

func (a *audit) complete() bool {
	done := 0
	for _, r := range a.records {
		if r.Done {
			done++
		}
	}
	return done >= a.dates
}

// verdict checks each date, and that the file of the run on record is there, and says what it found.
func (a *audit) verdict(out io.Writer, bills string) error {
	for i := range a.dates {
		date := dateOf(i)
		r := a.records[date]
		if !r.Done {
			return fmt.Errorf("%w: %s was never completed", errNotOnce, date)
		}
		// A process may be killed after its run was recorded and before it said so, so one may have said nothing.
		for _, t := range a.tokens[date] {
			if t != r.Token {
				return fmt.Errorf("%w: %s was completed under token %d, and under %d by the record", errNotOnce, date, t, r.Token)
			}
		}
		if len(a.tokens[date]) > 1 {
			return fmt.Errorf("%w: %s was completed twice", errNotOnce, date)
		}
		if _, err := os.Stat(filepath.Join(bills, r.File)); err != nil {
			return fmt.Errorf("%w: the bill of %s: %w", errNotOnce, date, err)
		}
	}
	if a.gap > maxGap {
		return fmt.Errorf("%w: for %v none was completed", errNotOnce, a.gap)
	}
	_, _ = fmt.Fprintf(out, "%d dates, %d runs begun, %d completed: each date was billed exactly once. The longest pause was %.1f s.\n",
		a.dates, a.begun, a.dates, a.gap.Seconds())
	return nil
}
