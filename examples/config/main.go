//go:build unix

// Config shows feature flags that change while the service runs: three processes, one typed record, and each process has every
// change within milliseconds; a bad value does no harm, and neither does the death of the process that owns the record's shard.
//
//	go run ./examples/config
//
// It ends by itself within 30 s, with exit status 0 if every process saw every change, and leaves nothing behind. Start reading in flags.go,
// the part that a service of your own would have; then orders.go, how flags are changed; then story.go, what happens to them.
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
	exitDone   = 0 // every process saw every change
	exitUnseen = 1 // one did not
	exitFailed = 2 // the story could not be told to its end
)

func main() {
	var c childConfig
	limit := flag.Duration("limit", 28*time.Second, "give up after this time")
	flag.StringVar(&c.name, "process", "", "internal: be this process of the story, told what to do on stdin")
	flag.StringVar(&c.dir, "dir", "", "internal: the process's directory")
	flag.StringVar(&c.join, "join", "", "internal: addresses of the other processes, separated by commas")
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
	status := run(ctx, os.Stdout)
	cancel()
	stop()
	os.Exit(status)
}

// run tells the story and returns the exit status. No process and no directory is left when it returns, but for the logs of a story that
// failed.
func run(ctx context.Context, out io.Writer) int {
	err := tell(ctx, out)
	switch {
	case errors.Is(err, errUnseen):
		_, _ = fmt.Fprintf(out, "FAILED: %v\n", err)
		return exitUnseen
	case err != nil:
		_, _ = fmt.Fprintf(out, "The story ends here: %v\n", err)
		return exitFailed
	}
	return exitDone
}

func tell(ctx context.Context, out io.Writer) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "oarlock-config-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	s := newStory(out, binary, dir)
	err = s.tell(ctx)
	s.cast.End()
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w\nThe logs of the processes are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
