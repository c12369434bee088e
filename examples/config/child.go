//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/oarlock/oarlock/node"
)

// childConfig is what a process of the story is started with.
type childConfig struct{ name, dir, join string }

// What a process reports, one JSON object a line on its stdout.
const (
	isOpen   = "open"   // the node listens at Addr
	has      = "has"    // the flags are Flags, of Revision; with Err, why the record is of no use
	told     = "told"   // the watch told of the change at Revision
	answered = "answer" // to the order
	broken   = "broken" // it cannot go on, because of Err
)

type report struct {
	Kind      string
	Addr      string        `json:",omitempty"`
	Flags     Flags         `json:",omitzero"`
	Revision  node.Revision `json:",omitempty"`
	Customers int           `json:",omitempty"` // how many of a hundred get the new checkout
	Owner     string        `json:",omitempty"` // the process that owns the shard of the flags
	History   []change      `json:",omitempty"` // the oldest first
	Err       string        `json:",omitempty"`
	BadValue  bool          `json:",omitempty"` // Err is node.ErrBadValue
	Conflict  bool          `json:",omitempty"` // Err is node.ErrConflict
}

// A change is one of the record's.
type change struct {
	Revision node.Revision
	At       time.Time
	Value    string
}

// What a process is told to do, one JSON object a line on its stdin.
const (
	doSet    = "set"     // write Flags
	doSwap   = "swap"    // write Flags if the record is still of revision Old
	doUpdate = "update"  // raise the present percentage by that of Flags, and set its banner if it has one
	doSetRaw = "set-raw" // write Raw, whatever it is
	doAsk    = "ask"     // who owns the shard, and the history
)

type order struct {
	Do    string
	Flags Flags         `json:",omitzero"`
	Old   node.Revision `json:",omitempty"`
	Raw   string        `json:",omitempty"`
}

func failed(r report, err error) report {
	if err != nil {
		r.Err, r.BadValue, r.Conflict = err.Error(), errors.Is(err, node.ErrBadValue), errors.Is(err, node.ErrConflict)
	}
	return r
}

// runChild is a process of the story. It ends when in ends, so that no process outlives the one that started it.
func runChild(c childConfig, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	conf := node.Config{Name: c.name, Dir: c.dir, Bind: "127.0.0.1:0", Bootstrap: 3, Shards: 1}
	if c.join != "" {
		conf.Join = strings.Split(c.join, ",")
	}
	n, err := node.Open(ctx, conf)
	if err != nil {
		return fmt.Errorf("open %s: %w", c.name, err)
	}
	var saying sync.Mutex // guards reports
	reports := json.NewEncoder(out)
	say := func(r report) {
		saying.Lock()
		defer saying.Unlock()
		_ = reports.Encode(r) // if nobody reads it any more, in ends, too
	}
	say(report{Kind: isOpen, Addr: n.Addr()})
	var running sync.WaitGroup
	running.Go(func() { // stops with ctx
		if err := serve(ctx, n, say); err != nil && ctx.Err() == nil {
			say(failed(report{Kind: broken}, err))
		}
	})
	flags := flagsOf(n)
	for d := json.NewDecoder(in); ; {
		var o order
		if err := d.Decode(&o); err != nil {
			break // in has ended
		}
		r, err := obey(ctx, n, flags, o)
		say(failed(r, err))
	}
	end()
	running.Wait()
	return n.Close()
}

// serve runs the shop until ctx ends.
func serve(ctx context.Context, n *node.Node, say func(report)) error {
	if err := n.Ready(ctx); err != nil {
		return err
	}
	s, err := openShop(ctx, n)
	if err != nil {
		return err
	}
	var telling sync.WaitGroup
	telling.Go(func() { s.watchLive(ctx, say) }) // stops with ctx
	defer telling.Wait()
	return s.watchAll(ctx, say)
}
