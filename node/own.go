package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/membership"
)

// Pauses before a callback of Own that failed runs again.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// OwnOptions are for Own; nil is the default.
type OwnOptions struct {
	// Max is for how many shards at most this Own runs fn on this node at a time, 1 to 512; zero: no limit. A fn that waits to be run
	// again after an error counts, one that returned nil does not. Further shards that the node owns wait for a place, lower numbers
	// first. One that has waited for 2 s is handed to a replica whose node has had room for it in every Own for 2 s, as far as gossip knows.
	// While there is no such node it stays owned where it is, with no fn: ShardStatus.Waits names it. A shard for which fn runs is
	// never moved into the last free place of another node. Each of several Own on a node has its own Max.
	Max int
}

func (o *OwnOptions) check() error {
	if o.Max < 0 || o.Max > maxShards {
		return fmt.Errorf("own: %w: Max is %d: give 0 to %d", ErrInvalid, o.Max, maxShards)
	}
	return nil
}

// An Ownership is this node's ownership of one shard, under one token. It is a small value, made by Own and Shard.Owned.
type Ownership struct{ o *ownership }

var _ Hold = Ownership{}

// Shard is the owned shard, nil for a zero value.
func (o Ownership) Shard() *Shard {
	if o.o == nil {
		return nil
	}
	return &o.o.l.g.shard
}

// Token is the ownership's fencing token, 0 for a zero value. Give it with each write to what the shard's work touches.
func (o Ownership) Token() Token {
	if o.o == nil {
		return 0
	}
	return o.o.token
}

// Check is nil while this node owns the shard, else ErrLost; ErrNotHeld for a zero value. While a hand-over waits for the callback
// it is nil still, so that the callback can finish what it began. See Hold.
func (o Ownership) Check() error {
	if o.o == nil {
		return ErrNotHeld
	}
	return o.o.hold.check()
}

// Done is closed when the ownership is lost or a hand-over begins. See Hold.
func (o Ownership) Done() <-chan struct{} {
	if o.o == nil {
		return (&hold{}).channel()
	}
	return o.o.hold.channel()
}

// Context ends with parent or with the ownership, with the cause ErrLost or ErrHandedOver. See Hold.
func (o Ownership) Context(parent context.Context) context.Context {
	if o.o == nil {
		return (&hold{}).context(parent)
	}
	return o.o.hold.context(parent)
}

// Own runs fn once for every shard that this node owns, in a goroutine each, until ctx ends. fn's ctx ends with the ownership, or with
// ctx: fn must then return soon, since the shard is not handed over before, up to Config.DrainTimeout. When fn returns nil it is not run
// again under the same token; after an error it is, with a backoff of 100 ms to 10 s. A shard's next fn on this node starts only
// after the former one returned. A panic in fn is the user's and is not swallowed. Own returns when ctx ends or the node stops, and all its fn
// have returned: the cause of ctx, or ErrClosed. Several Own calls may run.
func (n *Node) Own(ctx context.Context, opts *OwnOptions, fn func(context.Context, Ownership) error) error {
	if fn == nil {
		return fmt.Errorf("own: %w: fn is nil", ErrInvalid)
	}
	if opts == nil {
		opts = &OwnOptions{}
	}
	if err := opts.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &ownCall{ctx: ctx, fn: fn, max: opts.Max, running: map[*group]bool{}, waiting: map[*group]bool{}, finished: map[*group]Token{}}
	n.owning.register(c)
	if cl := n.cluster.Load(); cl != nil {
		for _, g := range cl.groups[1:] {
			c.kick(g)
		}
	}
	n.gossipRuns()
	select {
	case <-ctx.Done():
	case <-n.life.ctx.Done():
		cancel(n.closedErr())
	}
	n.owning.unregister(c)
	n.gossipRuns()
	c.close()
	return context.Cause(ctx)
}

// gossipRuns tells the others whether an Own runs here, and for how many more shards it has room, if that changed.
func (n *Node) gossipRuns() {
	if n.life.ctx.Err() != nil {
		return
	}
	runs, room := n.owning.room()
	if r := n.net.gossip.Self(); r.Runs == runs && r.Room == room {
		return
	}
	if err := n.net.gossip.Update(func(r *membership.Record) { r.Runs, r.Room = runs, room }); err != nil {
		n.log.Warn("cannot gossip whether Own runs", "err", err)
	}
}

// ownCall is one running Own.
type ownCall struct {
	ctx context.Context
	fn  func(context.Context, Ownership) error
	max int // for so many shards at a time; 0: no limit

	mu       sync.Mutex // guards the fields below
	closed   bool
	running  map[*group]bool
	waiting  map[*group]bool  // were owned when there was no place for them
	finished map[*group]Token // fn is done under this token
	wg       sync.WaitGroup
}

// kick looks whether the shard is owned and nothing runs for it yet.
func (c *ownCall) kick(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLocked(g)
}

// startLocked runs fn for the shard if it is to run and there is a place, or lets it wait for one.
func (c *ownCall) startLocked(g *group) {
	delete(c.waiting, g)
	if o := g.owned(); c.closed || c.running[g] || o == nil || o.token <= c.finished[g] {
		return
	}
	if c.max > 0 && len(c.running) >= c.max {
		c.waiting[g] = true
		return
	}
	c.running[g] = true
	c.wg.Go(func() { c.work(g) }) // stops when the shard is no longer owned, or fn's work is done; Own waits for it
}

// refillLocked gives a place that is free to those that wait.
func (c *ownCall) refillLocked() {
	waiting := slices.SortedFunc(maps.Keys(c.waiting), func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	for _, g := range waiting {
		if len(c.running) >= c.max {
			return
		}
		c.startLocked(g)
	}
}

// waits says whether the shard is owned here and has no place.
func (c *ownCall) waits(g *group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[g] && g.owned() != nil
}

// room is the number of free places; false: there is no limit.
func (c *ownCall) room() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.max-len(c.running), 0), c.max > 0
}

func (c *ownCall) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// work runs fn under one token after the other.
func (c *ownCall) work(g *group) {
	for {
		o := c.next(g)
		if o == nil {
			return
		}
		c.runUnder(o)
		c.mu.Lock()
		c.finished[g] = o.token
		c.mu.Unlock()
	}
}

// next is the ownership to run under; nil: there is none, and the shard counts as idle from here on.
func (c *ownCall) next(g *group) *ownership {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := g.owned(); o != nil && o.token > c.finished[g] && !c.closed && c.ctx.Err() == nil {
		return o
	}
	delete(c.running, g)
	c.refillLocked()
	return nil
}

// runUnder runs fn under o until it returns nil or o ends.
func (c *ownCall) runUnder(o *ownership) {
	backoff := firstBackoff
	for {
		if !o.calls.enter() {
			return
		}
		again := c.runOnce(o)
		o.calls.leave()
		if !again || !sleepUnder(c.ctx, o, backoff) {
			return
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// runOnce runs fn once under o. It says whether fn failed while both c and o go on.
func (c *ownCall) runOnce(o *ownership) (again bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	ctx = o.hold.context(ctx)
	err := c.fn(ctx, Ownership{o: o})
	if err == nil || ctx.Err() != nil {
		return false
	}
	o.l.g.n.log.Warn("callback of Own failed", "shard", o.l.g.id, "token", uint64(o.token), "err", err)
	return true
}

// sleepUnder waits for d. It says whether it did: not when ctx or o's hold ended.
func sleepUnder(ctx context.Context, o *ownership, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-o.hold.channel():
	case <-ctx.Done():
	}
	return false
}
