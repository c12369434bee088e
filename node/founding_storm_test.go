package node_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// A storm founds a cluster while nodes start at odd times, see only some of the others, are parted and crash.
type storm struct {
	nodes, bootstrap int
	rng              *rand.Rand
	c                *nodetest.Cluster
	group            []int // of each node; nodes of different groups do not reach each other
	kills            int   // still to come
	clusters         map[string]bool
}

// Founding under storms: never more than one cluster, and one in the end (case 84).
func TestCase084_FoundingStorm(t *testing.T) {
	for _, s := range []storm{{nodes: 3, bootstrap: 3}, {nodes: 5, bootstrap: 3}, {nodes: 5, bootstrap: 5}} {
		for seed := range nightly(10, 100) {
			t.Run(fmt.Sprintf("%dOf%d/%d", s.bootstrap, s.nodes, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := s
					s.rng = rand.New(rand.NewPCG(uint64(seed), uint64(s.nodes*10+s.bootstrap)))
					s.run(t)
				})
			})
		}
	}
}

func (s *storm) run(t *testing.T) {
	s.c = nodetest.New(t, 0, &nodetest.Options{
		Replicas: 3,
		Seed:     s.rng.Uint64(),
		Delay:    time.Duration(1+s.rng.IntN(60)) * time.Millisecond, // slow, so that faults hit the middle
	})
	s.group = make([]int, s.nodes)
	s.kills = 1 + s.rng.IntN(4)
	s.clusters = map[string]bool{}
	const tick = 5 * time.Millisecond
	starts := make([]int, s.nodes) // in ticks
	for i := range starts {
		starts[i] = s.rng.IntN(600)
	}
	slices.Sort(starts)
	for now := range 1200 {
		for s.c.Len() < s.nodes && starts[s.c.Len()] <= now {
			s.add(s.c.Len())
		}
		switch s.rng.IntN(150) {
		case 0:
			s.part()
		case 1:
			s.restart()
		case 2:
			s.kill(s.rng.IntN(s.nodes))
		}
		s.killPending()
		s.look()
		time.Sleep(tick)
	}
	s.c.Heal()
	for i := range s.nodes {
		if s.c.Node(i) == nil {
			s.c.Restart(i)
		}
	}
	s.c.AwaitReady()
	s.look()
	if len(s.clusters) != 1 {
		t.Errorf("got %d clusters, want 1: %v", len(s.clusters), s.clusters)
	}
	mustPut(t, s.c.Node(s.rng.IntN(s.nodes)).ShardAt(1), "k", "v")
}

// stormAddr is where node i lives.
func stormAddr(i int) string { return fmt.Sprintf("127.1.0.%d:7400", i+1) }

// add starts node i. It knows one of those before it, and by chance others, so all are linked.
func (s *storm) add(i int) {
	s.c.Add(func(c *node.Config) {
		c.Bind, c.Bootstrap, c.Shards, c.Replicas = stormAddr(i), s.bootstrap, 1, 3
		c.Join = nil
		if i > 0 {
			c.Join = append(c.Join, stormAddr(s.rng.IntN(i)))
		}
		for k := range s.nodes {
			if s.rng.IntN(3) == 0 {
				c.Join = append(c.Join, stormAddr(k))
			}
		}
	})
	s.partNow()
}

// part parts the nodes at random, or heals them.
func (s *storm) part() {
	n := 1 + s.rng.IntN(3)
	for i := range s.group {
		s.group[i] = s.rng.IntN(n)
	}
	s.c.Heal()
	s.partNow()
}

func (s *storm) partNow() {
	for i := range s.c.Len() {
		for k := range i {
			if s.group[i] != s.group[k] {
				s.c.Drop(i, k)
			}
		}
	}
}

func (s *storm) kill(i int) {
	if s.kills > 0 && i < s.c.Len() && s.c.Node(i) != nil {
		s.kills--
		s.c.Kill(i)
	}
}

// killPending kills, by chance, a node that has stored a plan which is not complete, or another one meanwhile.
func (s *storm) killPending() {
	for i := range s.c.Len() {
		if n := s.c.Node(i); n != nil && len(n.Status().Pending) > 0 && s.rng.IntN(10) == 0 {
			if s.rng.IntN(2) == 0 {
				i = s.rng.IntN(s.nodes)
			}
			s.kill(i)
		}
	}
}

// restart starts one of the nodes that are down.
func (s *storm) restart() {
	for i := range s.c.Len() {
		if s.c.Node(i) == nil {
			s.c.Restart(i)
			s.partNow()
			return
		}
	}
}

// look notes the clusters that nodes belong to.
func (s *storm) look() {
	for _, n := range s.c.Nodes() {
		if c := n.Status().Cluster; c != "" {
			s.clusters[c] = true
		}
	}
}

// clustersOf are the clusters that running nodes belong to.
func clustersOf(c *nodetest.Cluster) []string {
	s := storm{c: c, clusters: map[string]bool{}}
	s.look()
	var all []string
	for id := range s.clusters {
		all = append(all, id)
	}
	return all
}

// A logbook keeps what nodes log.
type logbook struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logbook) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: l})
}

func (l *logbook) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// wantLog fails unless part was logged.
func (l *logbook) wantLog(t *testing.T, part string) {
	t.Helper()
	if l.count(part) == 0 {
		t.Errorf("nothing with %q was logged", part)
	}
}

// Twice as many carriers as Bootstrap, or carriers of different numbers, found nothing and say so; when the mistake is mended
// they found one cluster.
func TestFounding_RefusesLoudly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logbook
		c := nodetest.New(t, 0, &nodetest.Options{Replicas: 3, Config: func(_ int, c *node.Config) { c.Logger = book.logger(hclog.Warn) }})
		for i := range 7 {
			c.Add(func(c *node.Config) {
				c.Bind, c.Bootstrap, c.Shards = stormAddr(i), 3, 1
				c.Join = []string{stormAddr(0)} // all hear of the odd one first
				if i == 0 {
					c.Bootstrap = 5
				}
			})
		}
		time.Sleep(30 * time.Second)
		book.wantLog(t, "carries another Bootstrap")
		c.Shutdown(0)
		time.Sleep(30 * time.Second)
		book.wantLog(t, "founds no cluster: Bootstrap must be more than half")
		if got := clustersOf(c); len(got) > 0 {
			t.Errorf("founded %v, want none", got)
		}
		c.Shutdown(6)
		c.AwaitReady()
		if got := clustersOf(c); len(got) != 1 {
			t.Errorf("founded %v, want one", got)
		}
	})
}

// A founder that is lost before it stored the plan does not count, also when another founder comes back at its address (case 69).
func TestFounding_AddressOfLostFounder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, &nodetest.Options{Delay: 50 * time.Millisecond})
		pending := -1
		c.Await("a plan", func() bool {
			for i := range 3 {
				if len(c.Node(i).Status().Pending) > 0 {
					pending = i
				}
			}
			return pending >= 0
		})
		lost, moved := (pending+1)%3, (pending+2)%3
		lostAddr, movedAddr := c.Addr(lost), c.Addr(moved)
		c.Kill(lost)
		c.Kill(moved)
		time.Sleep(10 * time.Second) // the address is free
		c.RestartAt(moved, lostAddr)
		time.Sleep(30 * time.Second)
		if got := clustersOf(c); len(got) > 0 {
			t.Errorf("founded %v without the lost founder", got)
		}
		if got := c.Node(pending).Status().Pending; len(got) != 3 {
			t.Errorf("pending: got %v, want the plan's three nodes", got)
		}
		c.RestartAt(lost, movedAddr)
		c.AwaitReady()
		if got := clustersOf(c); len(got) != 1 {
			t.Errorf("founded %v, want one", got)
		}
	})
}
