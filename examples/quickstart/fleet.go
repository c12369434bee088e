//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
	"github.com/oarlock/oarlock/node"
)

// ownership is what the parent knows of a shard.
type ownership struct {
	by    *procs.Member
	token node.Token
	at    time.Time // when its job was heard to begin
}

// A fleet is the three processes and what they have said. It is used by one goroutine: until is the only place where anything is heard.
type fleet struct {
	dir      string
	unfenced bool
	cast     *procs.Cast[report]

	shards  map[int]ownership      // under the highest token heard of
	holds   map[*procs.Member]sets // shards whose job runs in the process
	ready   map[*procs.Member]bool // answered the last await
	billed  map[string]node.Token  // customers, with the token of the last charge heard of, 0 if only found in the ledger
	last    map[topic]report       // the last report of each topic
	refused []report
}

type sets map[int]node.Token

// A topic tells reports apart: by kind, and by the key that was written or read.
type topic struct{ kind, key string }

func newFleet(binary, dir string, unfenced bool) *fleet {
	f := &fleet{
		dir: dir, unfenced: unfenced, cast: procs.NewCast[report](binary, dir, "app-1", "app-2", "app-3"),
		shards: map[int]ownership{}, holds: map[*procs.Member]sets{}, ready: map[*procs.Member]bool{},
		billed: map[string]node.Token{}, last: map[topic]report{},
	}
	for _, p := range f.cast.Members {
		f.holds[p] = sets{}
	}
	return f
}

func (f *fleet) ledger() string { return filepath.Join(f.dir, "ledger.jsonl") }

// start starts a process, tells it where the others are, and waits until it listens.
func (f *fleet) start(ctx context.Context, p *procs.Member) error {
	args := []string{"-ledger", f.ledger()}
	if f.unfenced {
		args = append(args, "-unfenced")
	}
	if err := f.cast.Start(p, args...); err != nil {
		return err
	}
	return f.until(ctx, p.Name+" to listen", func() bool { return p.Addr != "" })
}

// restart starts a process again after its end.
func (f *fleet) restart(ctx context.Context, p *procs.Member) error {
	if err := f.until(ctx, p.Name+" to end", func() bool { return !p.Alive }); err != nil {
		return err
	}
	return f.start(ctx, p)
}

// awaitReady waits until all processes have joined, caught up, and every shard has an owner.
func (f *fleet) awaitReady(ctx context.Context) error {
	clear(f.ready)
	if err := f.tellAll(order{Do: doAwait}); err != nil {
		return err
	}
	return f.until(ctx, "all three to be ready", func() bool { return len(f.ready) == len(f.cast.Members) })
}

// freeze stops a process like a debugger or a machine out of memory would. It waits until the process does not write to the ledger: a
// file lock that a stopped process holds would stop the others, too.
func (f *fleet) freeze(ctx context.Context, p *procs.Member) error {
	if err := f.ask(ctx, p, order{Do: doStill}, topic{kind: isStill}); err != nil {
		return err
	}
	return p.Pause()
}

// thaw lets a frozen or held process go on.
func (f *fleet) thaw(p *procs.Member) error {
	if err := p.Tell(order{Do: doGoOn}); err != nil {
		return err
	}
	return p.Signal(syscall.SIGCONT)
}

// ask gives p an order and waits until it has reported on the topic.
func (f *fleet) ask(ctx context.Context, p *procs.Member, o order, t topic) error {
	delete(f.last, t)
	if err := p.Tell(o); err != nil {
		return err
	}
	return f.until(ctx, fmt.Sprintf("%s to report %s", p.Name, t.kind), func() bool { return f.last[t].from == p })
}

func (f *fleet) tellAll(o order) error {
	for _, p := range f.cast.Members {
		if err := p.Tell(o); err != nil {
			return err
		}
	}
	return nil
}

// until listens until cond holds. what says in an error what was waited for.
func (f *fleet) until(ctx context.Context, what string, cond func() bool) error {
	for !cond() {
		h, err := f.cast.Next(ctx)
		switch {
		case err != nil:
		case h.Over:
			clear(f.holds[h.From])
		default:
			h.Report.from = h.From
			err = f.hear(h.Report)
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
	return nil
}

// hear takes in what a process said. An error means that the story cannot go on.
func (f *fleet) hear(r report) error {
	p := r.from
	switch r.Kind {
	case isOpen:
		p.Addr = r.Addr
	case isReady:
		if r.Err != "" {
			return fmt.Errorf("%s is not ready: %s", p.Name, r.Err)
		}
		f.ready[p] = true
	case owns:
		f.holds[p][r.Shard] = r.Token
		if f.shards[r.Shard].token < r.Token {
			f.shards[r.Shard] = ownership{by: p, token: r.Token, at: time.Now()}
		}
		for _, c := range r.Billed { // a process may be killed after it wrote a charge and before it said so
			if _, ok := f.billed[c]; !ok {
				f.billed[c] = 0
			}
		}
	case lost:
		if f.holds[p][r.Shard] == r.Token {
			delete(f.holds[p], r.Shard)
		}
	case charged:
		f.billed[r.Customer] = r.Token
	case refused:
		f.refused = append(f.refused, r)
	case hasFailed:
		return fmt.Errorf("%s failed: %s", p.Name, r.Err)
	}
	f.last[topic{r.Kind, r.Key}] = r
	return nil
}

// owned lists the shards of a process.
func (f *fleet) owned(p *procs.Member) (shards []int) {
	for s, o := range f.shards {
		if o.by == p {
			shards = append(shards, s)
		}
	}
	slices.Sort(shards)
	return shards
}

// busiest is the process that owns most shards.
func (f *fleet) busiest() *procs.Member {
	return slices.MaxFunc(f.cast.Members, func(a, b *procs.Member) int { return len(f.owned(a)) - len(f.owned(b)) })
}

// takenOver tells whether each of the shards, given as they were, has a new owner with a higher token.
func (f *fleet) takenOver(before map[int]ownership) bool {
	for s, o := range before {
		if now := f.shards[s]; now.by == o.by || now.token <= o.token {
			return false
		}
	}
	return true
}

// ownerships is what p owns now, to compare with later.
func (f *fleet) ownerships(p *procs.Member) map[int]ownership {
	before := map[int]ownership{}
	for _, s := range f.owned(p) {
		before[s] = f.shards[s]
	}
	return before
}
