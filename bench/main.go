package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	failover := flag.Bool("failover", false, "measure how long shards are without an owner after a kill and after a Shutdown")
	rounds := flag.Int("rounds", 20, "how many kills, and how many shutdowns")
	var w workerConfig
	flag.StringVar(&w.name, "worker", "", "internal: be this node")
	flag.StringVar(&w.dir, "dir", "", "internal: the node's directory")
	flag.StringVar(&w.join, "join", "", "internal: the addresses of the others, separated by commas")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, w, *failover, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w workerConfig, failover bool, rounds int) error {
	switch {
	case w.name != "":
		return runWorker(w, os.Stdin, os.Stdout)
	case failover && rounds > 0:
		return measureFailover(ctx, os.Stdout, rounds)
	}
	flag.Usage()
	return errors.New("nothing to measure: give -failover")
}
