package nodetest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/transport/memnet"
)

const (
	port      = "7400"
	patience  = time.Minute      // of the Await methods and of a start, in virtual time
	gossipEnd = 15 * time.Second // the gossip library's goroutines outlive it for so long
)

// A Cluster is a number of nodes in one bubble. Its methods are for the goroutines of the test and safe for concurrent use;
// those that cannot do what they are asked end the test with t.Fatal, so they belong to the test's own goroutine.
type Cluster struct {
	t      testing.TB
	o      Options
	net    *memnet.Network
	checks *checker

	mu       sync.Mutex // guards the fields below
	members  []*member
	hosts    map[string][]string
	faults   []pairFault     // of the network, in the order they were made
	isolated map[string]bool // addresses that the test isolated
	dying    map[string]bool // addresses of nodes that were killed and are not closed yet
	done     bool            // the test is over: nothing is logged any more
}

// New makes and starts n nodes, which found a cluster. It must be called inside a testing/synctest bubble, and returns before
// they have: see AwaitReady. When the test ends, all faults are healed, the invariants are checked once more and the nodes are closed.
func New(t testing.TB, n int, o *Options) *Cluster {
	t.Helper()
	d := o.withDefaults(n)
	c := &Cluster{t: t, o: d, hosts: map[string][]string{}, isolated: map[string]bool{}, dying: map[string]bool{}}
	c.net = memnet.New(memnet.Options{Seed: d.Seed, Delay: d.Delay, Jitter: d.Jitter})
	synctest.Wait() // panics outside a bubble, and says so
	c.checks = newChecker(c)
	t.Cleanup(c.finish)
	for i := range n {
		c.members = append(c.members, newMember(c, i))
	}
	for _, m := range c.members {
		m.config.Bootstrap = d.Bootstrap
		m.config.Shards = d.Shards
		m.config.Replicas = d.Replicas
		m.config.Join = c.seeds()
	}
	for _, m := range c.members {
		if err := m.start(); err != nil {
			t.Fatalf("start node %d: %v", m.i, err)
		}
	}
	c.checks.start()
	return c
}

// seeds are the addresses that the first nodes have at the start.
func (c *Cluster) seeds() []string {
	var s []string
	for i := range c.members {
		s = append(s, addrOf(i))
	}
	return s
}

func addrOf(i int) string {
	return net.JoinHostPort(fmt.Sprintf("127.0.%d.%d", (i+1)/200, (i+1)%200), port)
}

// Add starts one more node, which joins the cluster, and returns its index. change may be nil; it is given the config that the node
// would start with.
func (c *Cluster) Add(change func(*node.Config)) int {
	c.t.Helper()
	m := c.grow()
	if change != nil {
		change(&m.config)
	}
	if err := m.start(); err != nil {
		c.t.Fatalf("start node %d: %v", m.i, err)
	}
	return m.i
}

// grow makes one more member, which is down.
func (c *Cluster) grow() *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := newMember(c, len(c.members))
	m.config.Join = c.seeds()
	c.members = append(c.members, m)
	return m
}

// Node is node i, nil while it is down.
func (c *Cluster) Node(i int) *node.Node { return c.member(i).running() }

// Nodes are the nodes that run now.
func (c *Cluster) Nodes() []*node.Node {
	var ns []*node.Node
	for _, m := range c.all() {
		if n := m.running(); n != nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// Len is the number of nodes that were made, those that are down included.
func (c *Cluster) Len() int { return len(c.all()) }

// Addr is the address of node i.
func (c *Cluster) Addr(i int) string { return c.member(i).address() }

// Host makes a name resolve to addresses, which have no ports, for the nodes' Config.Join. No addresses: it does not exist.
func (c *Cluster) Host(name string, addrs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[name] = addrs
}

func (c *Cluster) lookup(_ context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.hosts[host]; len(a) > 0 {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (c *Cluster) member(i int) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[i]
}

func (c *Cluster) all() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[:len(c.members):len(c.members)]
}

// finish is the end of the test.
func (c *Cluster) finish() {
	c.healAll()
	c.checks.finish()
	c.closeAll()
	time.Sleep(gossipEnd)
	c.checks.checkLeaks()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
}

// healAll takes every fault away.
func (c *Cluster) healAll() {
	for _, m := range c.all() {
		m.disk.Heal()
		m.clock.Thaw()
		c.net.Resume(m.address())
	}
	c.Heal()
}

// closeAll closes all nodes at once and waits for those that were killed.
func (c *Cluster) closeAll() {
	var wg sync.WaitGroup
	for _, m := range c.all() {
		wg.Go(func() { // stops when the node is closed
			if err := m.close(); err != nil && !m.disk.failed() {
				c.t.Errorf("close node %d: %v", m.i, err)
			}
		})
	}
	wg.Wait()
}
