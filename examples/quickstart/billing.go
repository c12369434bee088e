//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oarlock/oarlock/node"
)

// effort is how long the work for one customer takes before its charge is written.
const effort = 100 * time.Millisecond

func customer(i int) string { return fmt.Sprintf("customer-%03d", i) }

// billShard is the job. The node runs it for each shard that this process owns, and ends ctx when it no longer owns it. There is
// one such job for a shard in the whole cluster, but for a process that was stopped and has not noticed yet: for that the ledger
// gets the token with every write.
func (w *worker) billShard(ctx context.Context, o node.Ownership) error {
	shard, token := o.Shard().ID(), o.Token()
	defer func() { w.say(report{Kind: lost, Shard: shard, Token: token, Err: cause(ctx)}) }()

	// First show the ledger the new token, and only then ask what is billed already: from here on it refuses former owners, so
	// the answer stays true until this job changes it.
	w.writing.Lock()
	billed, err := w.ledger.Open(shard, token)
	w.writing.Unlock()
	if err != nil {
		return err
	}
	w.say(report{Kind: owns, Shard: shard, Token: token, Billed: slices.Collect(maps.Keys(billed))})
	for {
		customers, more := w.due.get()
		for i := 1; i <= customers; i++ {
			c := customer(i)
			if w.node.Shard(c).ID() != shard || billed[c] {
				continue
			}
			if err := w.charge(ctx, o, c); err != nil {
				return err
			}
			billed[c] = true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// charge bills one customer.
func (w *worker) charge(ctx context.Context, o node.Ownership, c string) error {
	select {
	case <-time.After(effort):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	if err := o.Check(); err != nil {
		return err
	}
	// The window. The check said yes, the write comes next, and a process may be stopped in between for any time, by a debugger, a
	// full disk, a virtual machine that moves. No library can close this window. Here the story stops the process.
	w.window(report{Kind: isHeld, Shard: o.Shard().ID(), Token: o.Token(), Customer: c})

	shard, token := o.Shard().ID(), o.Token()
	err := w.ledger.Charge(c, shard, token)
	switch {
	case errors.Is(err, errFenced):
		w.say(report{Kind: refused, Shard: shard, Token: token, Customer: c, Err: err.Error()})
	case err == nil:
		w.say(report{Kind: charged, Shard: shard, Token: token, Customer: c})
	}
	return err
}

func cause(ctx context.Context) string {
	if err := context.Cause(ctx); err != nil {
		return err.Error()
	}
	return ""
}
