package nodetest

import (
	"context"
	"time"
)

// Kill crashes node i at this instant, as a loss of power would: nothing goes in or out any more, and what was not synced is gone,
// see Disk.LoseUnsynced. Its holds and calls end as those of a closed node; its connections break a little later. Restart starts it
// again.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	if err := c.member(i).kill(); err != nil {
		c.t.Fatalf("kill node %d: %v", i, err)
	}
}

// Shutdown stops node i gracefully, and returns how long that took.
func (c *Cluster) Shutdown(i int) time.Duration {
	c.t.Helper()
	m := c.member(i)
	n := m.take()
	if n == nil {
		c.t.Fatalf("shut node %d down: it is down already", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer c.checks.within(patience+closeLimit, m.disk.hangs, "shut node %d down", i)()
	began := time.Now()
	if err := n.Shutdown(ctx); err != nil {
		c.t.Fatalf("shut node %d down: %v", i, err)
	}
	return time.Since(began)
}

// Close closes node i without a hand-over.
func (c *Cluster) Close(i int) {
	c.t.Helper()
	if err := c.member(i).close(); err != nil {
		c.t.Fatalf("close node %d: %v", i, err)
	}
}

// Restart starts node i again, at its old address and on the same boot of its machine, after Kill, Shutdown or Close.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if err := c.TryRestart(i); err != nil {
		c.t.Fatalf("restart node %d: %v", i, err)
	}
}

// TryRestart is Restart for starts that may be refused.
func (c *Cluster) TryRestart(i int) error { return c.member(i).start() }

// RestartAt starts node i again at another address, host:port.
func (c *Cluster) RestartAt(i int, addr string) {
	c.t.Helper()
	m := c.member(i)
	m.mu.Lock()
	m.config.Bind = addr
	m.mu.Unlock()
	c.Restart(i)
}

// Reboot makes the next start of node i, which must be down, one on another boot of its machine.
func (c *Cluster) Reboot(i int) {
	m := c.member(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot++
}

// Binary makes the next start of node i one of a binary that speaks cluster format versions up to format.
func (c *Cluster) Binary(i int, format uint32) {
	m := c.member(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.format = format
}

// Wipe empties the disk of node i, which must be down: the next start is that of a new node.
func (c *Cluster) Wipe(i int) {
	c.t.Helper()
	m := c.member(i)
	if m.running() != nil {
		c.t.Fatalf("wipe node %d: it runs", i)
	}
	m.settled()
	m.disk.wipe()
}

// Clone makes a further node, which is down, whose disk is a copy of that of node i, and returns its index. Restart starts it,
// TryRestart where the copy is to be refused.
func (c *Cluster) Clone(i int) int {
	c.t.Helper()
	from, to := c.member(i), c.grow()
	from.settled()
	if err := from.disk.copyTo(to.disk); err != nil {
		c.t.Fatalf("clone node %d: %v", i, err)
	}
	return to.i
}

// Partition parts the nodes into the given groups of indexes, silently: between groups nothing passes and nobody gets an error. Nodes
// that are in no group are in one together.
func (c *Cluster) Partition(groups ...[]int) {
	in := make([]int, c.Len())
	for g, nodes := range groups {
		for _, i := range nodes {
			in[i] = g + 1
		}
	}
	for i := range in {
		for k := range i {
			if in[i] != in[k] {
				c.Drop(i, k)
			}
		}
	}
}

// PartitionOneWay swallows what goes from one node to another, silently. The other direction works.
func (c *Cluster) PartitionOneWay(from, to int) { c.fault(from, to, c.net.Cut) }

// Reject parts two nodes loudly: connections break, new ones are refused.
func (c *Cluster) Reject(i, k int) { c.fault(i, k, c.net.Partition) }

// Drop swallows everything between two nodes, silently.
func (c *Cluster) Drop(i, k int) { c.fault(i, k, c.net.Drop) }

// Isolate pulls the cable of node i: nothing goes in or out, and nobody gets an error.
func (c *Cluster) Isolate(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := c.members[i].address()
	c.isolated[addr] = true
	c.net.Isolate(addr)
}

// Delay makes each message between two nodes take d and a random part of jitter.
func (c *Cluster) Delay(i, k int, d, jitter time.Duration) {
	c.fault(i, k, func(a, b string) { c.net.Delay(a, b, d, jitter) })
}

// Loss loses each packet between two nodes with probability p; connections lose time.
func (c *Cluster) Loss(i, k int, p float64) {
	c.fault(i, k, func(a, b string) { c.net.Loss(a, b, p) })
}

// Heal takes the faults of the network away. Nodes that are paused stay so.
func (c *Cluster) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		c.net.Heal(f.a, f.b)
	}
	for addr := range c.isolated {
		if !c.dying[addr] {
			c.net.Rejoin(addr)
		}
	}
	c.faults = nil
	clear(c.isolated)
}

// A pairFault is a fault of the network between two addresses.
type pairFault struct {
	a, b string
	do   func(a, b string)
}

func (c *Cluster) fault(i, k int, do func(a, b string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := pairFault{c.members[i].address(), c.members[k].address(), do}
	c.faults = append(c.faults, f)
	do(f.a, f.b)
}

// silence lets nobody hear the node at addr any more, which is killed: until reset.
func (c *Cluster) silence(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dying[addr] = true
	c.net.Isolate(addr)
}

// reset breaks what is left of the connections of a node that was killed, with all bytes that are on their way, and lets the
// address be used again. Faults that the test made stay.
func (c *Cluster) reset(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if other := m.address(); other != addr {
			c.net.Partition(addr, other)
			c.net.Heal(addr, other)
		}
	}
	for _, f := range c.faults {
		if f.a == addr || f.b == addr {
			f.do(f.a, f.b)
		}
	}
	delete(c.dying, addr)
	if !c.isolated[addr] {
		c.net.Rejoin(addr)
	}
}

// Pause holds the network and the disk of node i, as a stopped process would, until Resume: what is sent to it waits. The
// process's goroutines run on as far as they need neither, in their own time.
func (c *Cluster) Pause(i int) {
	c.net.Hold(c.Addr(i))
	c.Disk(i).Stall()
}

// Resume ends Pause.
func (c *Cluster) Resume(i int) {
	c.Disk(i).Resume()
	c.net.Resume(c.Addr(i))
}

// Freeze stops the clock of node i until Thaw: the time since boot that its leases go by. Its tickers go on.
func (c *Cluster) Freeze(i int) { c.member(i).clock.Freeze() }

// Thaw lets the clock of node i go on from where it stood.
func (c *Cluster) Thaw(i int) { c.member(i).clock.Thaw() }

// StepClock moves the clock of node i ahead by d, as a suspend does.
func (c *Cluster) StepClock(i int, d time.Duration) { c.member(i).clock.Step(d) }

// Disk is the disk of node i.
func (c *Cluster) Disk(i int) *Disk { return c.member(i).disk }

// MayFail says that the test makes node i fail: then that is no violation.
func (c *Cluster) MayFail(i int) {
	m := c.member(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = true
}
