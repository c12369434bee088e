//go:build unix

// Quickstart shows what oarlock does, with three real processes on this machine, a nightly billing job, and every accident that
// usually bills a customer twice: a process is killed, a process freezes and wakes up too late, a majority is lost.
//
//	go run ./examples/quickstart             # each customer is billed exactly once; exit status 0
//	go run ./examples/quickstart -unfenced   # the same without the fencing check; a charge is overwritten, exit status 1
//
// It needs no set-up, leaves nothing behind and ends within a minute. Start reading in billing.go, the part that a service of your
// own would have; then ledger.go, the resource with its fencing check; then story.go, what happens to them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitDone   = 0 // each customer was billed exactly once
	exitBilled = 1 // a customer was not
	exitFailed = 2 // the story could not be told to its end
)

func main() {
	var c childConfig
	unfenced := flag.Bool("unfenced", false, "leave out the fencing check, to see what it is for")
	limit := flag.Duration("limit", 55*time.Second, "give up after this time")
	flag.StringVar(&c.name, "process", "", "internal: be this process of the story, told what to do on stdin")
	flag.StringVar(&c.dir, "dir", "", "internal: the process's directory")
	flag.StringVar(&c.ledger, "ledger", "", "internal: the ledger file")
	flag.StringVar(&c.join, "join", "", "internal: addresses of the other processes, separated by commas")
	flag.Parse()

	c.unfenced = *unfenced
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
	status := run(ctx, os.Stdout, *unfenced)
	cancel()
	stop()
	os.Exit(status)
}

// run tells the story and returns the exit status. No process and no directory is left when it returns, but for the logs of a
// story that failed.
func run(ctx context.Context, out io.Writer, unfenced bool) int {
	show := newScreen(out)
	err := tell(ctx, show, unfenced)
	switch {
	case errors.Is(err, errNotOnce):
		return exitBilled
	case err != nil:
		show.say("\nThe story ends here: %v", err)
		return exitFailed
	}
	return exitDone
}

func tell(ctx context.Context, show *screen, unfenced bool) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "oarlock-quickstart-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	f := newFleet(binary, dir, unfenced)
	err = (&story{fleet: f, show: show}).tell(ctx)
	f.cast.End()
	if err != nil && !errors.Is(err, errNotOnce) && !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w\nThe logs of the processes are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
