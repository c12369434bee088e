//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/oarlock/oarlock/node"
)

// childConfig is what a process of the story is started with.
type childConfig struct {
	name, dir, ledger, join string
	unfenced                bool
}

// worker is one process of the story: a node, and the billing job on top of it.
type worker struct {
	node   *node.Node
	ledger *ledger
	due    *due
	life   context.Context // ends when the process is told to end

	writing sync.Mutex    // held while the ledger is written or a write is about to come; a stopped process must not hold the file's lock
	holding chan struct{} // has an element if the next charge is to be held
	goOn    chan struct{} // has an element if what waits may go on

	saying sync.Mutex // guards out
	out    *json.Encoder
}

// runChild is a process of the story. It ends when in ends, so that no process outlives the one that started it.
func runChild(c childConfig, in io.Reader, out io.Writer) error {
	conf := node.Config{Name: c.name, Dir: c.dir, Bind: "127.0.0.1:0", Bootstrap: 3}
	if c.join != "" {
		conf.Join = strings.Split(c.join, ",")
	}
	life, end := context.WithCancel(context.Background())
	defer end()
	n, err := node.Open(life, conf)
	if err != nil {
		return fmt.Errorf("open %s: %w", c.name, err)
	}
	w := &worker{
		node: n, ledger: &ledger{path: c.ledger, by: c.name, fenced: !c.unfenced}, due: newDue(), life: life,
		holding: make(chan struct{}, 1), goOn: make(chan struct{}, 1), out: json.NewEncoder(out),
	}
	w.say(report{Kind: isOpen, Addr: n.Addr()})

	var running sync.WaitGroup
	running.Go(func() { _ = n.Own(life, nil, w.billShard) }) // stops when life ends, and always says just that
	running.Go(w.watchNode)                                  // stops when life or the node ends
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			w.say(report{Kind: hasFailed, Err: err.Error()})
			break
		}
		if !w.obey(o) {
			running.Go(func() { w.call(o) }) // stops when the call is answered or life ends
		}
	}
	end()
	running.Wait()
	return n.Close()
}

func (w *worker) watchNode() {
	select {
	case <-w.node.Done():
		w.say(report{Kind: hasFailed, Err: fmt.Sprint(w.node.Err())})
	case <-w.life.Done():
	}
}

// say writes one line. It does not matter if nobody reads it any more: then stdin ends, too.
func (w *worker) say(r report) {
	w.saying.Lock()
	defer w.saying.Unlock()
	_ = w.out.Encode(r)
}

// obey does an order that takes no time, in the order of the lines. It returns false for all others.
func (w *worker) obey(o order) bool {
	switch o.Do {
	case doBill:
		w.due.set(o.Customers)
	case doHoldNext:
		w.holding <- struct{}{}
	case doGoOn:
		w.goOn <- struct{}{}
	default:
		return false
	}
	return true
}

// call does an order that has to wait for something, and reports.
func (w *worker) call(o order) {
	ctx, cancel := context.WithTimeout(w.life, o.Within)
	defer cancel()
	switch o.Do {
	case doAwait:
		w.say(failed(report{Kind: isReady}, w.node.Ready(w.life)))
	case doStill:
		w.writing.Lock()
		w.wait(report{Kind: isStill})
		w.writing.Unlock()
	case doPut:
		_, err := w.node.Shard(o.Key).Put(ctx, o.Key, []byte(o.Value), nil)
		w.say(failed(report{Kind: wrote, Key: o.Key, Value: o.Value}, err))
	case doGet:
		rec, err := w.node.Shard(o.Key).Get(ctx, o.Key)
		w.say(failed(report{Kind: read, Key: o.Key, Value: string(rec.Value)}, err))
	}
}

func failed(r report, err error) report {
	if err != nil {
		r.Err, r.NoQuorum, r.Unknown = err.Error(), errors.Is(err, node.ErrNoQuorum), errors.Is(err, node.ErrUnknown)
	}
	return r
}

// window is where the story may stop the process: between the check and the write.
func (w *worker) window(r report) {
	select {
	case <-w.holding:
		w.wait(r)
	default:
	}
}

func (w *worker) wait(r report) {
	w.say(r)
	select {
	case <-w.goOn:
	case <-w.life.Done():
	}
}

// due is how many customers are to be billed. It grows while the jobs run.
type due struct {
	mu        sync.Mutex // guards the fields below
	customers int
	more      chan struct{} // closed when customers changes
}

func newDue() *due { return &due{more: make(chan struct{})} }

func (d *due) get() (customers int, more <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.customers, d.more
}

func (d *due) set(customers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.customers = max(d.customers, customers)
	close(d.more)
	d.more = make(chan struct{})
}
