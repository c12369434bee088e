package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/logbridge"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/raft"
	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/rpc"
)

// A Node is one process's part in a cluster. It is made by Open and safe for concurrent use. The library never ends or
// blocks its process: a node that cannot go on is Failed, which Done and Err tell.
type Node struct {
	c    Config
	env  *env.Env
	log  hclog.Logger
	me   owner.ID // this node and start
	home *home
	life lifetime
	net  network
	disk storage

	cluster  atomic.Pointer[cluster] // nil until the node belongs to one
	founded  chan struct{}           // closed when cluster is set
	founding founding
	owning   owning
	leading  leading
	renewer  *renewer
	stats    counters
	attempt  atomic.Uint64 // counts attempts to propose; starts at random
}

// lifetime is how a node ends.
type lifetime struct {
	ctx    context.Context // the root: ends when the node closes or fails
	cancel context.CancelCauseFunc
	tasks  tasks
	calls  *gate
	done   chan struct{} // closed when the node has failed or is closed
	opened chan struct{} // closed when Open is through: what it opened can be closed

	mu       sync.Mutex    // guards the fields below
	err      error         // why it ended; nil for Close and Shutdown
	state    State         // rises
	closed   chan struct{} // non-nil once the end has begun; closed when it is through
	closeErr error         // set before closed is closed
}

func (l *lifetime) init() {
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.calls = newGate()
	l.done, l.opened = make(chan struct{}), make(chan struct{})
}

// network is how a node reaches others.
type network struct {
	transport transport.Transport
	gossip    *membership.Membership
	server    *rpc.Server
	client    *rpc.Client
	known     *addresses
	nonce     uint64        // tells this process from one in a copy of the directory
	opened    time.Duration // when, since boot
}

// storage is where a node keeps its state.
type storage struct {
	db     *pebble.DB
	log    *logbridge.PebbleLogger
	host   *raft.Host // nil until the node belongs to a cluster
	detach func()     // from the Raft library's log
}

// Open starts a node in c.Dir. It returns once the directory is locked and the ports are open, and never waits for peers: founding,
// joining and elections go on in the background, see Ready. ctx bounds the opening only. The error joins everything
// that is wrong with c, each an ErrInvalid; or is ErrDirLocked, or says what the disk or network refused.
func Open(ctx context.Context, c Config) (*Node, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	e, err := env.From(ctx)
	if err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	n := &Node{c: c, env: e, log: c.Logger, founded: make(chan struct{})}
	n.life.init()
	n.attempt.Store(randomAttempt())
	n.owning.init()
	n.leading.init()
	n.founding.n = n
	err = n.open(ctx)
	close(n.life.opened)
	if err == nil {
		err = n.Err() // it may have failed meanwhile
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open node: %w", err), n.Close())
	}
	n.life.tasks.spawn(n.live)
	n.life.tasks.spawn(func() { n.checkAdvertised(n.life.ctx) }) // stops when looked up, or when the node ends
	if e.Inspect != nil {
		e.Inspect(inspector{n})
	}
	return n, nil
}

func (n *Node) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var err error
	if n.home, err = openHome(n.env, n.c.Dir, n.maxFormat()); err != nil {
		return err
	}
	n.me = owner.ID{Node: n.home.id.ID, Incarnation: n.home.id.Incarnation}
	if n.home.id.Founded {
		if err := n.c.matches(n.home.plan); err != nil {
			return err
		}
	}
	n.disk.detach = logbridge.Attach(n.log)
	if n.disk.db, err = n.openState(); err != nil {
		return err
	}
	if err := n.openNetwork(ctx); err != nil {
		return err
	}
	n.renewer = newRenewer(n)
	return nil
}

// maxFormat is the newest cluster format version that this binary speaks.
func (n *Node) maxFormat() uint32 {
	if n.env.MaxFormat != 0 {
		return n.env.MaxFormat
	}
	return fsm.Version
}

// ID is the node's UUID, made when its directory was empty. It is the node's identity for ever.
func (n *Node) ID() string { return n.me.Node }

// Name is Config.Name.
func (n *Node) Name() string { return n.c.Name }

// Addr is the host:port that peers reach the node at, with the real port after ":0".
func (n *Node) Addr() string { return n.net.transport.Addr() }

// Done is closed when the node has stopped, failed or was removed. Err says which.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Err is nil while the node runs and after Close or Shutdown; else it says why the node cannot go on.
func (n *Node) Err() error {
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	return n.life.err
}

// Healthy is for liveness probes: it is non-nil only when the node has failed or was removed, never for a lost quorum, which a
// restart would not mend.
func (n *Node) Healthy() error { return n.Err() }

// fail ends the node because it cannot go on: its holds are lost, its calls end, what it uses is closed. The process lives.
func (n *Node) fail(err error) {
	if n.ending(StateFailed, err) {
		n.log.Error("node failed", "node", n.me.Node, "err", err)
		go n.end() // stops when all is closed; Close waits for it
	}
}

// ending notes the end of the node, the first time it is called.
func (n *Node) ending(state State, err error) bool {
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.life.closed != nil {
		return false
	}
	n.life.closed = make(chan struct{})
	n.life.err, n.life.state = err, state
	return true
}

// end ends what is held, the calls and the goroutines, and closes what the node uses.
func (n *Node) end() {
	<-n.life.opened
	n.endHolds(ErrLost)
	n.life.cancel(n.closedErr())
	if n.Err() != nil {
		close(n.life.done)
	}
	n.life.closeErr = n.closeAll()
	if n.Err() == nil {
		close(n.life.done)
	}
	close(n.life.closed)
}

// endHolds ends every ownership and session of this node, by local knowledge alone.
func (n *Node) endHolds(cause error) {
	cl := n.cluster.Load()
	if cl == nil {
		return
	}
	for _, g := range cl.groups {
		g.endHolds(cause)
	}
}

// Close stops the node now: its holds end at once, its calls end with ErrClosed, its ports and directory are free when it returns.
// It tells nobody; locks it held stay taken until their sessions time out or the node restarts in its directory. Shutdown
// is the graceful way. Close is idempotent and may be called from any goroutine, also from a callback of Own, which it does
// not wait for.
func (n *Node) Close() error {
	if n.ending(StateClosed, nil) {
		n.end()
	}
	n.life.mu.Lock()
	closed := n.life.closed
	n.life.mu.Unlock()
	<-closed
	return n.life.closeErr
}

// closeAll closes what is open, in the order of use, and joins what goes wrong.
func (n *Node) closeAll() error {
	var errs []error
	add := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", what, err))
		}
	}
	if n.net.server != nil {
		add("rpc server", n.net.server.Close())
	}
	if n.net.client != nil {
		add("rpc client", n.net.client.Close())
	}
	n.life.tasks.close()
	n.life.calls.close()
	n.endHolds(ErrLost) // a claim that was under way may have begun an ownership meanwhile
	if n.disk.host != nil {
		n.releaseReplicas()
		add("raft", n.disk.host.Close())
	}
	if n.net.gossip != nil {
		add("gossip", n.net.gossip.Close())
	}
	if n.net.transport != nil {
		add("transport", n.net.transport.Close())
	}
	if n.disk.host != nil {
		n.disk.host.Wait()
	}
	if n.disk.db != nil {
		add("state", n.closeState())
	}
	if n.disk.detach != nil {
		n.disk.detach()
	}
	if n.home != nil {
		n.markCopied()
		add("directory", n.home.close())
	}
	add("clock", n.env.Clock.Close())
	return errors.Join(errs...)
}

// closeState closes the database. One that has failed cannot be closed: what it holds stays until the process ends.
func (n *Node) closeState() error {
	if err := n.disk.log.Err(); err != nil {
		n.disk.log.Release()
		return err
	}
	return n.disk.log.Do(n.disk.db.Close)
}

// releaseReplicas gives back workers that are held by halted replicas.
func (n *Node) releaseReplicas() {
	if cl := n.cluster.Load(); cl != nil {
		for _, g := range cl.groups {
			if g.local != nil {
				g.local.release()
			}
		}
	}
}
