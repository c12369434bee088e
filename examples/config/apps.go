//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
	"github.com/oarlock/oarlock/node"
)

// errUnseen: a process did not see a change, saw one twice, or out of order.
var errUnseen = errors.New("not every process saw every change")

// app is one of the three processes, and what it has said in its present life.
type app struct {
	*procs.Member
	first, now *report         // what it had as its flags first, and what it has now; nil: it has said nothing
	at         time.Time       // when it said now
	answer     *report         // to the last order
	told       []node.Revision // by its watch
}

func (a *app) hear(r report) error {
	switch r.Kind {
	case isOpen:
		a.Addr = r.Addr
	case has:
		a.now, a.at = &r, time.Now()
		if a.first == nil {
			a.first = a.now
		}
	case told:
		a.told = append(a.told, r.Revision)
	case answered:
		a.answer = &r
	case broken:
		return fmt.Errorf("%s cannot go on: %s", a.Name, r.Err)
	}
	return nil
}

// A cluster is the three processes. It is used by one goroutine: until is the only place where anything is heard.
type cluster struct {
	out  io.Writer
	cast *procs.Cast[report]
	apps []*app
}

func (c *cluster) print(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format+"\n", args...) }

// until listens until cond holds.
func (c *cluster) until(ctx context.Context, what string, cond func() bool) error {
	for !cond() {
		h, err := c.cast.Next(ctx)
		if err == nil && !h.Over {
			err = c.apps[slices.Index(c.cast.Members, h.From)].hear(h.Report)
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
	return nil
}

func (c *cluster) start(ctx context.Context, a *app) error {
	a.first, a.now, a.told = nil, nil, nil
	if err := c.cast.Start(a.Member); err != nil {
		return err
	}
	if err := c.until(ctx, a.Name+" to listen", func() bool { return a.Addr != "" }); err != nil {
		return err
	}
	c.print("  %s runs as process %d and listens on %s", a.Name, a.Pid(), a.Addr)
	return nil
}

// order has an app do something and waits for its answer.
func (c *cluster) order(ctx context.Context, a *app, o order) error {
	a.answer = nil
	if err := a.Tell(o); err != nil {
		return err
	}
	return c.until(ctx, a.Name+" to "+o.Do, func() bool { return a.answer != nil })
}

// must is order, and wants it done.
func (c *cluster) must(ctx context.Context, a *app, o order) error {
	if err := c.order(ctx, a, o); err != nil {
		return err
	}
	if a.answer.Err != "" {
		return fmt.Errorf("%s failed to %s: %s", a.Name, o.Do, a.answer.Err)
	}
	return nil
}

// seen waits until each app that lives has said what ok wants, and says how long after begun that was.
func (c *cluster) seen(ctx context.Context, begun time.Time, what string, ok func(*report) bool) (slowest time.Duration, err error) {
	var missing []string
	err = c.until(ctx, "all to see "+what, func() bool {
		missing = nil
		for _, a := range c.apps {
			if a.Alive && (a.now == nil || !ok(a.now)) {
				missing = append(missing, a.Name)
			}
		}
		return len(missing) == 0
	})
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, fmt.Errorf("%w: %s did not see %s: %w", errUnseen, strings.Join(missing, ", "), what, err)
	case err != nil:
		return 0, err
	}
	var after []string
	for _, a := range c.apps {
		if a.Alive {
			d := a.at.Sub(begun)
			slowest = max(slowest, d)
			after = append(after, fmt.Sprintf("%s after %s", a.Name, round(d)))
		}
	}
	c.print("  seen by %s", strings.Join(after, ", "))
	return slowest, nil
}

// round keeps two digits or so.
func round(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
