package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	failover := flag.Bool("failover", false, "measure how long shards are without an owner after a kill and after a Shutdown")
	var o failoverOptions
	flag.IntVar(&o.kills, "kills", 20, "how many kills")
	flag.IntVar(&o.shutdowns, "shutdowns", 20, "how many shutdowns")
	flag.BoolVar(&o.verbose, "v", false, "print each measurement, and keep the logs of the nodes, at level debug")
	var w workerConfig
	flag.StringVar(&w.name, "worker", "", "internal: be this node")
	flag.StringVar(&w.dir, "dir", "", "internal: the node's directory")
	flag.StringVar(&w.join, "join", "", "internal: the addresses of the others, separated by commas")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, w, *failover, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w workerConfig, failover bool, o failoverOptions) error {
	switch {
	case w.name != "":
		w.verbose = o.verbose
		return runWorker(w, os.Stdin, os.Stdout)
	case failover:
		return measureFailover(ctx, os.Stdout, o)
	}
	flag.Usage()
	return errors.New("nothing to measure: give -failover")
}
