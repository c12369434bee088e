package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
)

// What a worker reports, one JSON object a line.
const (
	isOpen     = "open"     // its node listens at Addr
	isReady    = "ready"    // its node is ready; or Err
	owns       = "owns"     // the callback of Own began for Shard under Token
	isShutDown = "shutdown" // Shutdown returned after Took; or Err
	hasEnded   = "ended"    // the worker's stdout ended
)

// What a worker is told, one word a line.
const (
	doAwait    = "await"    // report when ready
	doShutdown = "shutdown" // call Shutdown
)

type report struct {
	Kind  string        `json:"kind"`
	Addr  string        `json:"addr,omitempty"`
	Shard int           `json:"shard,omitempty"`
	Token node.Token    `json:"token,omitempty"`
	Took  time.Duration `json:"took,omitempty"`
	Err   string        `json:"err,omitempty"`

	from *process
	at   time.Time // when it was read
}

type workerConfig struct {
	name, dir, join string
	verbose         bool
}

// worker is one node in a process of its own.
type worker struct {
	node *node.Node
	mu   sync.Mutex // guards out
	out  *json.Encoder
}

// runWorker runs a node until in ends or it was told to shut down.
func runWorker(c workerConfig, in io.Reader, out io.Writer) error {
	conf := node.Config{Name: c.name, Dir: c.dir, Bind: "127.0.0.1:0", Bootstrap: 3}
	if c.verbose {
		conf.Logger = hclog.New(&hclog.LoggerOptions{Name: c.name, Level: hclog.Debug})
	}
	if c.join != "" {
		conf.Join = strings.Split(c.join, ",")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n, err := node.Open(ctx, conf)
	if err != nil {
		return err
	}
	w := &worker{node: n, out: json.NewEncoder(out)}
	w.say(report{Kind: isOpen, Addr: n.Addr()})
	var running sync.WaitGroup
	running.Go(func() { // stops when ctx or the node ends
		_ = n.Own(ctx, nil, func(ctx context.Context, o node.Ownership) error {
			w.say(report{Kind: owns, Shard: o.Shard().ID(), Token: o.Token()})
			<-ctx.Done()
			return nil
		})
	})
	for lines := bufio.NewScanner(in); lines.Scan() && lines.Text() != doShutdown; {
		if lines.Text() == doAwait {
			running.Go(func() { w.sayErr(report{Kind: isReady}, n.Ready(ctx)) }) // stops when ready, or ctx ends
		}
	}
	begun := time.Now()
	err = n.Shutdown(ctx)
	w.sayErr(report{Kind: isShutDown, Took: time.Since(begun)}, err)
	cancel()
	running.Wait()
	return nil
}

func (w *worker) say(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r) // if nobody reads it any more, stdin ends, too
}

func (w *worker) sayErr(r report, err error) {
	if err != nil {
		r.Err = fmt.Sprint(err)
	}
	w.say(r)
}
