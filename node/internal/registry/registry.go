package registry

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

// ErrUnknownReplica says that nothing has told yet which node runs the replica.
var ErrUnknownReplica = errors.New("registry: node of replica unknown")

// maxLearned bounds what peers can make us remember. It is far above what a cluster needs: an entry is only learned for a
// replica whose log has not said anything about its peers yet.
const maxLearned = 1 << 16

// A Factory makes the registry of one NodeHost and feeds it what is learned from messages. The zero value works. It is safe
// for concurrent use once Logger is set.
type Factory struct {
	Logger hclog.Logger // nil: silent

	mu  sync.Mutex // guards reg
	reg *Registry
}

var _ config.NodeRegistryFactory = (*Factory)(nil)

// NewFactory returns a factory without a logger.
func NewFactory() *Factory { return &Factory{} }

// Create is called by dragonboat when its NodeHost starts. streams is how many connections it wants to each node: the shards
// are spread over them. valid tells node UUIDs from other strings; nil accepts all. A second call replaces the registry that
// Learn feeds. It never returns an error.
func (f *Factory) Create(_ string, streams uint64, valid config.TargetValidator) (raftio.INodeRegistry, error) {
	logger := f.Logger
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	r := &Registry{streams: max(streams, 1), valid: valid, logger: logger, nodes: map[raftio.NodeInfo]entry{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reg = r
	return r, nil
}

// Learn notes that a message of the replica arrived from node, a UUID that the connection has proved. It changes nothing if
// the replica's node is known already, and nothing before Create. It does not block.
func (f *Factory) Learn(shard, replica uint64, node string) {
	f.mu.Lock()
	r := f.reg
	f.mu.Unlock()
	if r != nil {
		r.learn(shard, replica, node)
	}
}

// A Registry maps (shard, replica) to the UUID of a node. It is safe for concurrent use and never blocks.
type Registry struct {
	streams uint64
	valid   config.TargetValidator
	logger  hclog.Logger

	mu      sync.RWMutex // guards the fields below
	nodes   map[raftio.NodeInfo]entry
	learned int
}

var _ raftio.INodeRegistry = (*Registry)(nil)

type entry struct {
	node, key string
	learned   bool
}

// Close does nothing; it is there for dragonboat.
func (r *Registry) Close() error { return nil }

// Add says with the authority of a log that node runs the replica. It replaces what was only learned. Another node than an
// earlier Add named is refused and logged: a replica id belongs to one node for ever, so one of the two logs is wrong, and
// sending a replica's messages elsewhere would be worse than sending them in vain.
func (r *Registry) Add(shard, replica uint64, node string) {
	if !r.accepts(node) {
		r.logger.Error("log names a node that is no UUID", "shard", shard, "replica", replica, "node", node)
		return
	}
	at := raftio.GetNodeInfo(shard, replica)
	r.mu.Lock()
	old, known := r.nodes[at]
	if known && !old.learned {
		r.mu.Unlock()
		if old.node != node {
			r.logger.Error("log names two nodes for one replica", "shard", shard, "replica", replica, "node", old.node, "peer", node)
		}
		return
	}
	if known {
		r.learned--
	}
	r.nodes[at] = entry{node: node, key: r.key(node, shard)}
	r.mu.Unlock()
	if known && old.node != node {
		r.logger.Warn("messages of a replica came from a node that does not run it", "shard", shard, "replica", replica, "node", node, "peer", old.node)
	}
}

// Remove forgets the replica.
func (r *Registry) Remove(shard, replica uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(raftio.GetNodeInfo(shard, replica))
}

// RemoveShard forgets all replicas of the shard.
func (r *Registry) RemoveShard(shard uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.nodes {
		if at.ShardID == shard {
			r.removeLocked(at)
		}
	}
}

// Resolve returns the UUID of the replica's node, and the key of the connection to use. Shards with an equal remainder share a
// connection. It returns ErrUnknownReplica until Add or Learn has named the node.
func (r *Registry) Resolve(shard, replica uint64) (node, key string, err error) {
	r.mu.RLock()
	e, ok := r.nodes[raftio.GetNodeInfo(shard, replica)]
	r.mu.RUnlock()
	if !ok {
		return "", "", ErrUnknownReplica // not wrapped: dragonboat asks for each message, and looks at nil or not
	}
	return e.node, e.key, nil
}

// learn is Add with the authority of a message. The read lock is enough for nearly every call.
func (r *Registry) learn(shard, replica uint64, node string) {
	at := raftio.GetNodeInfo(shard, replica)
	r.mu.RLock()
	_, known := r.nodes[at]
	r.mu.RUnlock()
	if known || !r.accepts(node) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.nodes[at]; known || r.learned >= maxLearned {
		return
	}
	r.learned++
	r.nodes[at] = entry{node: node, key: r.key(node, shard), learned: true}
}

func (r *Registry) removeLocked(at raftio.NodeInfo) {
	if e, ok := r.nodes[at]; ok && e.learned {
		r.learned--
	}
	delete(r.nodes, at)
}

func (r *Registry) accepts(node string) bool { return r.valid == nil || r.valid(node) }

// key names the connection: dragonboat keeps one queue and one connection for each key.
func (r *Registry) key(node string, shard uint64) string {
	if r.streams == 1 {
		return node
	}
	return fmt.Sprintf("%s-%d", node, shard%r.streams)
}
