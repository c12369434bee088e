package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/logbridge"
	"github.com/oarlock/oarlock/transport/rpc"
)

// stateMark is written to the state database when it is made, so that one that lost its content is noticed. Its key sorts before all
// keys of package fsm.
const stateMark = "\x00node"

// openState opens the database of all replicas' state. One that ran replicas before must be there.
func (n *Node) openState() (*pebble.DB, error) {
	dir := n.home.path(stateDir)
	n.disk.log = logbridge.Pebble(n.log.Named("state"), n.fail)
	o := &pebble.Options{
		FS:                          n.disk.log.FS(n.env.FS),
		Logger:                      n.disk.log,
		EventListener:               n.disk.log.Events(),
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       20,
		ErrorIfNotExists:            n.home.id.Started,
	}
	cache := pebble.NewCache(16 << 20)
	defer cache.Unref()
	o.Cache = cache
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open state in %s: restore the whole directory, or give an empty one to start as a new node: %w", dir, err)
	}
	if err := n.checkMark(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkMark binds the database to the node.
func (n *Node) checkMark(db *pebble.DB) error {
	v, c, err := db.Get([]byte(stateMark))
	switch {
	case errors.Is(err, pebble.ErrNotFound) && !n.home.id.Started:
		if err := db.Set([]byte(stateMark), []byte(n.ID()), pebble.Sync); err != nil {
			return fmt.Errorf("mark state: %w", err)
		}
		return nil
	case errors.Is(err, pebble.ErrNotFound):
		return fmt.Errorf("%w: Config.Dir = %q: its state was lost while %s stayed: give an empty directory to start as a new node", ErrInvalid, n.c.Dir, identityFile)
	case err != nil:
		return fmt.Errorf("read mark of state: %w", err)
	}
	defer c.Close()
	if string(v) != n.ID() {
		return fmt.Errorf("%w: Config.Dir = %q: its state is node %s's and its %s node %s's: restore the whole directory", ErrInvalid, n.c.Dir, v, identityFile, n.ID())
	}
	return nil
}

// openNetwork opens the ports and starts gossip and calls.
func (n *Node) openNetwork(ctx context.Context) error {
	if files := logbridge.SettingsFiles("."); len(files) > 0 {
		n.log.Warn("files in the working directory change the Raft library's settings", "files", files)
	}
	advertise, err := n.advertise()
	if err != nil {
		return err
	}
	listening, err := n.env.Listen(n.c.Bind, advertise, n.log.Named("transport"))
	if err != nil { // and a nil of some type that must not be closed
		return fmt.Errorf("listen on Config.Bind = %q: %w", n.c.Bind, err)
	}
	n.net.transport = listening
	n.net.nonce, n.net.opened = randomAttempt(), n.env.Clock.Now()
	n.net.client = rpc.NewClient(n.net.transport, &rpc.Options{Logger: n.log.Named("rpc")})
	if err := n.meetFormer(ctx); err != nil {
		return err
	}
	self := membership.Record{
		ID:          n.ID(),
		Name:        n.c.Name,
		Addr:        n.net.transport.Addr(),
		Zone:        n.c.Zone,
		Tags:        n.c.Tags,
		Incarnation: n.me.Incarnation,
		Nonce:       n.net.nonce,
		MinVersion:  minFormat,
		MaxVersion:  n.maxFormat(),
		NoReplicas:  n.c.NoReplicas,
	}
	if n.home.id.Founded {
		self.Cluster = n.home.plan.GetCluster()
	} else {
		self.Founder, self.Shards, self.Replicas = n.c.Bootstrap, uint32(n.c.shards()), uint32(n.c.replicas())
	}
	n.net.gossip, err = membership.Open(membership.Config{
		Self:       self,
		Join:       n.c.Join,
		Peers:      n.net.known.all,
		Lookup:     n.env.Lookup,
		Transport:  n.net.transport,
		Logger:     n.log.Named("gossip"),
		OnConflict: n.conflict,
	})
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	n.net.server = rpc.Serve(n.net.transport, n.serve, &rpc.Options{Logger: n.log.Named("rpc")})
	return nil
}

// advertise is Config.Advertise, or for a wildcard bind the machine's only address.
func (n *Node) advertise() (string, error) {
	host, _, err := net.SplitHostPort(n.c.Bind)
	if err != nil || n.c.Advertise != "" || !isWildcard(host) {
		return n.c.Advertise, err
	}
	ip, err := onlyAddress()
	if err != nil {
		return "", fmt.Errorf("%w: Config.Advertise: %w", ErrInvalid, err)
	}
	return net.JoinHostPort(ip, strconv.Itoa(0)), nil
}

// checkAdvertised warns if the name that peers are to reach this node at does not resolve here: it may come to, but as long as it does not
// nobody finds the node.
func (n *Node) checkAdvertised(ctx context.Context) {
	host, _, err := net.SplitHostPort(n.Addr())
	if err != nil || net.ParseIP(host) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.c.RequestTimeout)
	defer cancel()
	if _, err := n.env.Lookup(ctx, host); err != nil && ctx.Err() == nil {
		n.log.Warn("Config.Advertise does not resolve: peers cannot find this node", "addr", n.Addr(), "err", err)
	}
}

// randomAttempt is where a process's numbers start that must differ from those of every other process.
func randomAttempt() uint64 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return uint64(os.Getpid()) << 32 // crypto/rand does not fail on supported systems
	}
	return binary.LittleEndian.Uint64(b[:])
}

// leave tells the others that this node goes.
func (n *Node) leave(ctx context.Context) {
	if err := n.net.gossip.Leave(ctx); err != nil {
		n.log.Debug("leaving was not spread", "err", err)
	}
}
