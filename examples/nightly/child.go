//go:build unix

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

	"github.com/oarlock/oarlock/node"
)

// childConfig is what a process of the story is started with.
type childConfig struct {
	name, dir, join, bills string
	first                  int64 // Unix seconds
	dates                  int
}

// What a process reports, one JSON object a line on its stdout.
const (
	isOpen    = "open"      // the node listens at Addr
	isReady   = "ready"     // it belongs to the cluster
	begins    = "begins"    // it runs the job of Date under Token, the Attempt-th run of it
	completed = "completed" // its run of Date is on record, with File
	failed    = "failed"    // its run of Date is not, or it does not know, because of Err
	recorded  = "recorded"  // the answer to an order: Records, or Err
)

type report struct {
	Kind    string
	Addr    string     `json:",omitempty"`
	Date    string     `json:",omitempty"`
	Token   node.Token `json:",omitempty"`
	Attempt int        `json:",omitempty"`
	File    string     `json:",omitempty"`
	Err     string     `json:",omitempty"`
	Records []record   `json:",omitempty"`
}

// A record is what the cluster knows of the job of a date.
type record struct {
	Date    string
	Done    bool
	Token   node.Token
	Attempt int
	File    string
}

// runChild is a process of the story. Each line of in asks it for the records. It ends when in ends, so that no process outlives the
// one that started it.
func runChild(c childConfig, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	conf := node.Config{Name: c.name, Dir: c.dir, Bind: "127.0.0.1:0", Bootstrap: 3, Shards: 1, SessionTTL: time.Second}
	if c.join != "" {
		conf.Join = strings.Split(c.join, ",")
	}
	n, err := node.Open(ctx, conf)
	if err != nil {
		return fmt.Errorf("open %s: %w", c.name, err)
	}
	var saying sync.Mutex // guards answers
	answers := json.NewEncoder(out)
	say := func(r report) {
		saying.Lock()
		defer saying.Unlock()
		_ = answers.Encode(r) // if nobody reads it any more, in ends, too
	}
	say(report{Kind: isOpen, Addr: n.Addr()})
	s := &service{node: n, first: time.Unix(c.first, 0), dates: c.dates, bills: c.bills, say: say, done: map[string]bool{}}
	var running sync.WaitGroup
	running.Go(func() { // stops with ctx
		if n.Ready(ctx) == nil {
			say(report{Kind: isReady})
		}
		if err := s.run(ctx); err != nil {
			say(report{Kind: failed, Err: err.Error()})
		}
	})
	for lines := bufio.NewScanner(in); lines.Scan(); {
		r := report{Kind: recorded}
		if r.Records, err = s.records(ctx); err != nil {
			r.Err = err.Error()
		}
		say(r)
	}
	end()
	running.Wait()
	return n.Close()
}
