package nodetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport"
)

// dir is every node's directory, each on its own disk.
const dir = "/data"

// A member is one node, up or down, with its surroundings.
type member struct {
	c     *Cluster
	i     int
	disk  *Disk
	clock *env.Virtual

	mu      sync.Mutex // guards the fields below
	config  node.Config
	boot    int        // counts the machine's boots
	format  uint32     // see Cluster.Binary
	node    *node.Node // nil while down
	inside  env.Inspector
	closing chan struct{} // non-nil once a killed node is being closed; closed when it is
	fails   bool          // the test expects the node to fail
}

func newMember(c *Cluster, i int) *member {
	m := &member{c: c, i: i, disk: newDisk(), clock: env.NewVirtual(time.Now())}
	m.config = node.Config{Name: fmt.Sprintf("node-%d", i), Dir: dir, Bind: addrOf(i)}
	if i < len(c.o.Formats) {
		m.format = c.o.Formats[i]
	}
	return m
}

func (m *member) running() *node.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

func (m *member) address() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config.Bind
}

// look is the node and a look into it; nil while it is down.
func (m *member) look() (*node.Node, env.Inspector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, m.inside
}

// start opens the node. A killed one that is still being closed is waited for.
func (m *member) start() error {
	m.mu.Lock()
	closing := m.closing
	config := m.config
	boot, format := m.boot, m.format
	up := m.node != nil
	m.mu.Unlock()
	if up {
		return errors.New("it runs already")
	}
	if closing != nil {
		<-closing
	}
	config.Logger = m.c.logger(config.Name)
	if m.c.o.Config != nil {
		m.c.o.Config(m.i, &config)
	}
	fs, raftFS := m.disk.mount()
	e := &env.Env{
		Clock:     m.clock,
		FS:        fs,
		RaftFS:    raftFS,
		BootID:    fmt.Sprintf("machine %d boot %d", m.i, boot),
		MaxFormat: format,
		Listen:    func(bind, _ string, _ hclog.Logger) (transport.Transport, error) { return m.c.net.Listen(bind) },
		Lookup:    m.c.lookup,
	}
	var inside env.Inspector
	e.Inspect = func(i env.Inspector) { inside = i }
	if m.c.o.Env != nil {
		m.c.o.Env(m.i, e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := m.c.checks.within(openLimit, m.disk.hangs, "start node %d", m.i)
	n, err := node.Open(env.With(ctx, e), config)
	stop()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config.Bind = n.Addr()
	m.node, m.inside, m.closing = n, inside, nil
	return nil
}

// take makes the node down and returns it, nil if it was.
func (m *member) take() *node.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.node
	m.node, m.inside = nil, nil
	return n
}

// kill ends the node as a crash would. It returns at the instant of the crash; the node is closed behind the scenes.
func (m *member) kill() error {
	m.mu.Lock()
	n := m.node
	closing := make(chan struct{})
	if n != nil {
		m.node, m.inside, m.closing = nil, nil, closing
	}
	addr := m.config.Bind
	m.mu.Unlock()
	if n == nil {
		return errors.New("it is down already")
	}
	m.c.silence(addr) // first: what the node says from here on is heard by nobody
	m.disk.crash()
	m.c.net.Resume(addr)
	go func() { // stops when the node is closed: start and close wait for it
		defer close(closing)
		_ = m.closeNode(n) // nothing that it does counts any more
		m.disk.settle()
		m.c.reset(addr)
	}()
	return nil
}

// close closes the node in good order, or waits until a killed one is closed.
func (m *member) close() error {
	m.settled()
	if n := m.take(); n != nil {
		return m.closeNode(n)
	}
	return nil
}

// closeNode closes n, which must not take long.
func (m *member) closeNode(n *node.Node) error {
	defer m.c.checks.within(closeLimit, m.disk.hangs, "close node %d", m.i)()
	return n.Close()
}

// settled waits until a killed node is closed.
func (m *member) settled() {
	m.mu.Lock()
	closing := m.closing
	m.mu.Unlock()
	if closing != nil {
		<-closing
	}
}

func (m *member) mayFail() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fails
}
