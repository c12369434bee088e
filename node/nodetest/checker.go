package nodetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/oarlock/oarlock/node"
)

const (
	checkEvery = 5 * time.Millisecond // the owners
	hashEvery  = 200                  // checks, of the replicas' states
	converge   = 30 * time.Second     // in which healthy replicas must catch up at the end
)

// A checker holds a cluster against the invariants, in one goroutine.
type checker struct {
	c    *Cluster
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	tokens   map[int]node.Token
	reported map[string]bool
	tracks   map[string]*track
	history  []*History
}

func newChecker(c *Cluster) *checker {
	return &checker{c: c, stop: make(chan struct{}), tokens: map[int]node.Token{}, reported: map[string]bool{}, tracks: map[string]*track{}}
}

func (k *checker) start() {
	k.wg.Go(k.loop) // stops at finish
}

func (k *checker) loop() {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for round := 1; ; round++ {
		select {
		case <-t.C:
		case <-k.stop:
			return
		}
		k.checkOwners()
		k.checkTracks()
		if round%hashEvery == 0 {
			k.checkStates()
			k.checkHealth()
		}
	}
}

// finish stops the continuous checks, lets the replicas catch up and looks once more.
func (k *checker) finish() {
	close(k.stop)
	k.wg.Wait()
	k.checkOwners()
	k.checkHealth()
	k.awaitStates()
	k.checkTracks()
	k.mu.Lock()
	history := k.history
	k.mu.Unlock()
	for _, h := range history {
		h.finish()
	}
}

func (k *checker) add(h *History) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.history = append(k.history, h)
}

// failf reports a violation once.
func (k *checker) failf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	k.mu.Lock()
	again := k.reported[msg]
	k.reported[msg] = true
	k.mu.Unlock()
	if !again {
		k.c.t.Errorf("invariant broken: %s", msg)
	}
}

// owned is one node's belief to own a shard.
type owned struct {
	i int
	o node.Hold
}

// checkOwners: at any instant at most one node believes that it owns a shard, and tokens rise.
func (k *checker) checkOwners() {
	for s := 1; s <= k.c.o.Shards; s++ {
		var seen []owned
		for _, m := range k.c.all() {
			n := m.running()
			if n == nil {
				continue
			}
			if o, ok := n.ShardAt(s).Owned(); ok {
				seen = append(seen, owned{m.i, o})
			}
		}
		k.judgeOwners(s, seen)
	}
}

// judgeOwners looks at who was seen, one after the other, to own a shard. The ones seen before the last are asked again: an
// ownership that ended is never revived, so one that is still trusted was so when the last was seen.
func (k *checker) judgeOwners(shard int, seen []owned) {
	if len(seen) == 0 {
		return
	}
	last := seen[len(seen)-1]
	for _, x := range seen[:len(seen)-1] {
		if x.o.Check() == nil {
			k.failf("nodes %d and %d both own shard %d, with tokens %d and %d", x.i, last.i, shard, x.o.Token(), last.o.Token())
		}
	}
	k.mu.Lock()
	high := k.tokens[shard]
	k.tokens[shard] = max(high, last.o.Token())
	k.mu.Unlock()
	if last.o.Token() < high && last.o.Check() == nil {
		k.failf("node %d owns shard %d with token %d after token %d was seen", last.i, shard, last.o.Token(), high)
	}
}

// checkHealth: no node fails whose disk is sound.
func (k *checker) checkHealth() {
	for _, m := range k.c.all() {
		if n := m.running(); n != nil {
			k.judgeHealth(m.i, n.Err(), m.disk.failed() || m.mayFail())
		}
	}
}

func (k *checker) judgeHealth(i int, err error, may bool) {
	if err != nil && !may {
		k.failf("node %d failed: %v", i, err)
	}
}
