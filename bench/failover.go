package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	shards = 16
	third  = shards / 3

	killGoal     = 4 * time.Second
	shutdownGoal = 300 * time.Millisecond
)

// failoverOptions says how much is measured, and what is told.
type failoverOptions struct {
	kills, shutdowns int
	verbose          bool
}

// measureFailover kills and shuts down nodes in turn and prints a table.
func measureFailover(ctx context.Context, out io.Writer, o failoverOptions) (err error) {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "oarlock-bench-")
	if err != nil {
		return err
	}
	p := newProcs(binary, dir, o.verbose)
	defer func() {
		err = errors.Join(err, p.close())
		if !o.verbose && (err == nil || ctx.Err() != nil) {
			err = errors.Join(err, os.RemoveAll(dir)) // else the logs stay
		}
	}()
	before := loadAverage()
	times, failed := p.measure(ctx, o)
	if failed != nil && len(times.kills) == 0 {
		return failed
	}
	head := fmt.Sprintf("3 processes, %d shards, default settings, %d CPUs, load average %s at begin, %s at end",
		shards, runtime.NumCPU(), before, loadAverage())
	if o.verbose {
		head += "\nlogs are in " + dir
	}
	if failed != nil {
		head += "\nnot complete"
	}
	return errors.Join(failed, times.print(out, head))
}

// failoverTimes are the measured values, in the order of measurement.
type failoverTimes struct {
	kills, shutdowns []time.Duration // until every shard has a new owner
	calls            []time.Duration // of Shutdown
}

func (p *procs) measure(ctx context.Context, o failoverOptions) (t failoverTimes, err error) {
	for _, w := range p.all {
		if err := p.start(ctx, w); err != nil {
			return t, err
		}
	}
	for i := range o.kills {
		took, err := p.kill(ctx, p.all[i%len(p.all)])
		if err != nil {
			return t, fmt.Errorf("kill %d: %w", i+1, err)
		}
		t.kills = append(t.kills, took)
		fmt.Fprintf(os.Stderr, "kill %d of %d: %v\n", i+1, o.kills, took.Round(time.Millisecond))
	}
	for i := range o.shutdowns {
		took, call, err := p.shutdown(ctx, p.all[i%len(p.all)])
		if err != nil {
			return t, fmt.Errorf("shutdown %d: %w", i+1, err)
		}
		t.shutdowns, t.calls = append(t.shutdowns, took), append(t.calls, call)
		fmt.Fprintf(os.Stderr, "shutdown %d of %d: %v\n", i+1, o.shutdowns, took.Round(time.Millisecond))
	}
	return t, nil
}

func (t failoverTimes) print(out io.Writer, head string) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	text := head + "\n\nuntil every shard has a new owner\tn\tmin\tp50\tp99\tmax\tgoal\n" +
		row("after SIGKILL", t.kills, killGoal) + row("after Shutdown", t.shutdowns, shutdownGoal) + row("Shutdown call", t.calls, 0)
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return w.Flush()
}

// kill measures one kill and starts the victim again.
func (p *procs) kill(ctx context.Context, victim *process) (took time.Duration, err error) {
	if err := p.settle(ctx, third); err != nil {
		return 0, err
	}
	before := p.owned(victim)
	victim.ending = true
	begun := time.Now()
	if err := victim.cmd.Process.Kill(); err != nil {
		return 0, err
	}
	took, err = p.takeover(ctx, before, begun)
	if err != nil {
		return 0, err
	}
	return took, p.restart(ctx, victim)
}

// shutdown measures one Shutdown and starts the victim again.
func (p *procs) shutdown(ctx context.Context, victim *process) (took, call time.Duration, err error) {
	if err := p.settle(ctx, third); err != nil {
		return 0, 0, err
	}
	before := p.owned(victim)
	victim.ending = true
	p.shut = report{}
	begun := time.Now()
	if err := p.tell(victim, doShutdown); err != nil {
		return 0, 0, err
	}
	took, err = p.takeover(ctx, before, begun)
	if err != nil {
		return 0, 0, err
	}
	if err := p.until(ctx, "Shutdown to return", func() bool { return p.shut.from == victim }); err != nil {
		return 0, 0, err
	}
	return took, p.shut.Took, p.restart(ctx, victim)
}

// takeover waits until each shard, given as it was, has a new owner with a higher token, and says when the last one had.
func (p *procs) takeover(ctx context.Context, before map[int]owner, begun time.Time) (took time.Duration, err error) {
	err = p.until(ctx, "takeover", func() bool {
		for s, was := range before {
			if now := p.owners[s]; now.by == was.by || now.token <= was.token {
				return false
			}
		}
		return true
	})
	for s, was := range before {
		now := p.owners[s]
		took = max(took, now.at.Sub(begun))
		if p.verbose && err == nil {
			fmt.Printf("%s shard %d: %s token %d, %s token %d after %s\n", begun.Format(time.StampMicro), s,
				was.by.name, was.token, now.by.name, now.token, short(now.at.Sub(begun)))
		}
	}
	return took, err
}

// row is one line of the table, empty if nothing was measured. A goal of 0 is none.
func row(name string, d []time.Duration, goal time.Duration) string {
	if len(d) == 0 {
		return ""
	}
	verdict := ""
	if goal > 0 {
		verdict = fmt.Sprintf("p99 <= %v: met", goal)
		if quantile(d, 99) > goal {
			verdict = fmt.Sprintf("p99 <= %v: missed", goal)
		}
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%s\t%s\n", name, len(d),
		short(quantile(d, 0)), short(quantile(d, 50)), short(quantile(d, 99)), short(quantile(d, 100)), verdict)
}

func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

// loadAverage is that of the last minute, where the system tells.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
