package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// places counts what runs on each node, and the most that ever did.
type places struct {
	mu   sync.Mutex // guards the fields below
	now  map[int]int
	most map[int]int
	on   map[int]int // by shard: callbacks that run
}

func newPlaces() *places {
	return &places{now: map[int]int{}, most: map[int]int{}, on: map[int]int{}}
}

// own runs Own on node i until the returned function is called, or the node ends.
func (p *places) own(t *testing.T, c *nodetest.Cluster, i, most int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	n := c.Node(i)
	wg.Go(func() { // stops with ctx or the node
		err := n.Own(ctx, &node.OwnOptions{Max: most}, func(ctx context.Context, o node.Ownership) error {
			p.add(i, o.Shard().ID(), 1)
			<-ctx.Done()
			p.add(i, o.Shard().ID(), -1)
			return nil
		})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, node.ErrClosed) {
			t.Errorf("own on node %d: %v", i, err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (p *places) add(i, shard, d int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[i] += d
	p.most[i] = max(p.most[i], p.now[i])
	p.on[shard] += d
}

// counts are the callbacks that run now, by node.
func (p *places) counts(nodes int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]int, nodes)
	for i := range out {
		out[i] = p.now[i]
	}
	return out
}

// waiting are the shards that some node's Status says to wait for a place.
func waiting(c *nodetest.Cluster) (shards []int) {
	for _, n := range c.Nodes() {
		for _, s := range n.Status().Shards {
			if s.Waits {
				shards = append(shards, s.Shard)
			}
		}
	}
	return shards
}

func tokens(c *nodetest.Cluster, shards int) (all []node.Token) {
	for shard := 1; shard <= shards; shard++ {
		if i := c.Owner(shard); i >= 0 {
			if o, ok := c.Node(i).ShardAt(shard).Owned(); ok {
				all = append(all, o.Token())
			}
		}
	}
	return all
}

// Shards beyond a node's Max go to nodes that have room, also new and restarted ones, and wait while there is none, named in Status. No node
// ever runs more than its Max, and once each shard has its place none moves any more.
func TestOwnOptions_Max(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 4
		c := nodetest.New(t, 3, &nodetest.Options{Shards: shards})
		c.AwaitReady()
		p := newPlaces()
		await := func(what string, want ...int) {
			t.Helper()
			waits := shards
			for _, n := range want {
				waits -= n
			}
			c.Await(what, func() bool {
				return cmp.Equal(p.counts(3), want) && len(waiting(c)) == waits && len(tokens(c, shards)) == shards
			})
			before := tokens(c, shards)
			time.Sleep(20 * time.Second)
			if diff := cmp.Diff(before, tokens(c, shards)); diff != "" || !cmp.Equal(p.counts(3), want) {
				t.Errorf("%s: shards go on moving; %v run now (-tokens +tokens 20 s later):\n%s", what, p.counts(3), diff)
			}
		}
		p.own(t, c, 0, 1)
		await("one place in all", 1, 0, 0)
		p.own(t, c, 1, 2)
		await("three places", 1, 2, 0)
		p.own(t, c, 2, 1)
		await("four places", 1, 2, 1)
		c.Kill(2)
		await("three places after a death", 1, 2, 0)
		c.Restart(2)
		p.own(t, c, 2, 3)
		c.Await("all to run", func() bool { return len(waiting(c)) == 0 && cmp.Equal(sum(p.counts(3)), shards) })
		p.mu.Lock()
		defer p.mu.Unlock()
		if diff := cmp.Diff(map[int]int{0: 1, 1: 2}, map[int]int{0: p.most[0], 1: p.most[1]}); diff != "" || p.most[2] > 3 {
			t.Errorf("most at a time: got %d on node 2; (-want +got):\n%s", p.most[2], diff)
		}
		for shard, n := range p.on {
			if n != 1 {
				t.Errorf("shard %d: %d callbacks run, want 1", shard, n)
			}
		}
	})
}

func sum(ns []int) (s int) {
	for _, n := range ns {
		s += n
	}
	return s
}

// A callback that returned nil gives its place to the next shard, in order; one that failed keeps it while it waits to be run again.
func TestOwnOptions_Max_PlacesAreGivenOn(t *testing.T) {
	bubble(t, 1, &nodetest.Options{Shards: 3}, func(t *testing.T, c *nodetest.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		err := c.Node(0).Own(ctx, &node.OwnOptions{Max: 1}, func(_ context.Context, o node.Ownership) error {
			got = append(got, fmt.Sprint(o.Shard().ID()))
			switch len(got) {
			case 1:
				return errors.New("planted")
			case 4:
				cancel()
			}
			return nil
		})
		if diff := cmp.Diff([]string{"1", "1", "2", "3"}, got); diff != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("callbacks of shards, %v (-want +got):\n%s", err, diff)
		}
		wantErr(t, "Max below zero", c.Node(0).Own(t.Context(), &node.OwnOptions{Max: -1}, func(context.Context, node.Ownership) error { return nil }), node.ErrInvalid)
		wantErr(t, "Max too large", c.Node(0).Own(t.Context(), &node.OwnOptions{Max: 513}, func(context.Context, node.Ownership) error { return nil }), node.ErrInvalid)
	})
}

// Each of several Own has its own Max: one is not held up by another's, and what one cannot run for is named in Status until that Own ends.
func TestOwnOptions_Max_Several(t *testing.T) {
	bubble(t, 1, &nodetest.Options{Shards: 3}, func(t *testing.T, c *nodetest.Cluster) {
		wide, narrow := newPlaces(), newPlaces()
		wide.own(t, c, 0, 0)
		stop := narrow.own(t, c, 0, 1)
		time.Sleep(time.Second)
		if wide.counts(1)[0] != 3 || narrow.counts(1)[0] != 1 || len(waiting(c)) != 2 {
			t.Errorf("got %v and %v, waiting %v; want 3, 1 and two that wait", wide.counts(1), narrow.counts(1), waiting(c))
		}
		stop()
		if wide.counts(1)[0] != 3 || len(waiting(c)) != 0 {
			t.Errorf("after one ended: got %v, waiting %v; want 3 and none", wide.counts(1), waiting(c))
		}
	})
}
