//go:build unix

// Nightly is a small service that bills once a night, to copy from: three processes, each with a schedule, and one RunOnce for each
// date. A story happens to it: whoever is billing is killed, or stopped until its run is lost, again and again.
//
//	go run ./examples/nightly
//
// A night takes a second here. It ends by itself within 40 s, with exit status 0 if each date has exactly one completed run, and leaves
// nothing behind. Start reading in service.go, the part that a service of your own would have; then story.go, what happens to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitDone   = 0 // each date has exactly one completed run
	exitWrong  = 1 // a date has none, or two
	exitFailed = 2 // the story could not be told to its end
)

func main() {
	var c childConfig
	blows := flag.Int("blows", 4, "how often the process that bills is killed or stopped, in turn")
	limit := flag.Duration("limit", 40*time.Second, "give up after this time")
	flag.StringVar(&c.name, "process", "", "internal: be this process of the story, told what to do on stdin")
	flag.StringVar(&c.dir, "dir", "", "internal: the process's directory")
	flag.StringVar(&c.join, "join", "", "internal: addresses of the other processes, separated by commas")
	flag.StringVar(&c.bills, "bills", "", "internal: the directory that bills are written to")
	flag.Int64Var(&c.first, "first", 0, "internal: when the first night is")
	flag.IntVar(&c.dates, "dates", 0, "internal: how many nights there are")
	flag.Parse()

	if c.name != "" {
		if err := runChild(c, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		return
	}
	runtime.LockOSThread() // the kernel ends the processes with the thread that started them, which must be the last to end
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %v", *limit))
	status := run(ctx, os.Stdout, *blows)
	cancel()
	stop()
	os.Exit(status)
}

// run tells the story and returns the exit status. No process and no directory is left when it returns, but for the logs of a story that
// failed.
func run(ctx context.Context, out io.Writer, blows int) int {
	err := tell(ctx, out, blows)
	switch {
	case errors.Is(err, errNotOnce):
		_, _ = fmt.Fprintf(out, "FAILED: %v\n", err)
		return exitWrong
	case err != nil:
		_, _ = fmt.Fprintf(out, "The story ends here: %v\n", err)
		return exitFailed
	}
	return exitDone
}

func tell(ctx context.Context, out io.Writer, blows int) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "oarlock-nightly-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bills"), 0o700); err != nil {
		return err
	}
	s := newStory(out, binary, dir, blows)
	err = s.tell(ctx)
	s.cast.End()
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w\nThe logs of the processes are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
