//go:build unix

// Fencing tells the oldest story about locks, twice, with real processes: A takes a lock and is paused between its last check and
// its write. The lock is granted to B, which writes. Then A wakes up, and writes, too.
//
//	go run ./examples/fencing
//
// The first time nobody compares tokens, and B's deposit is gone. The second time the bank does, with package node/fence. It
// ends by itself within half a minute and leaves nothing behind. Start reading in story.go; then bank.go, what the lock protects,
// and client.go, the processes that take it.
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

// unit is the time unit of the story.
const unit = 200 * time.Millisecond

func main() {
	var c clientConfig
	limit := flag.Duration("limit", time.Minute, "give up after this time")
	flag.StringVar(&c.name, "process", "", "internal: be this process of the story, told what to do on stdin")
	flag.StringVar(&c.dir, "dir", "", "internal: the process's directory")
	flag.StringVar(&c.join, "join", "", "internal: addresses of the other processes, separated by commas")
	flag.Parse()

	if c.name != "" {
		if err := runClient(c, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	runtime.LockOSThread() // the kernel ends the processes with the thread that started them, which must be the last to end
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %v", *limit))
	err := run(ctx, os.Stdout)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run tells the story. No process and no directory is left when it returns, but for the logs of a story that failed.
func run(ctx context.Context, out io.Writer) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "oarlock-fencing-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	err = tell(ctx, out, newStage(binary, dir))
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w\nThe logs of the processes are in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
