package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oarlock/oarlock/membership"
)

const (
	maxAddresses  = 128              // remembered
	maxAddrsFile  = 64 << 10         // bytes that are read of the file
	rememberAfter = time.Second      // a change is written after, since changes come together,
	rememberEvery = 10 * time.Second // and not more often than
)

// addresses are what the directory remembers of where the cluster's nodes were last, in a file of their own. They help a node to find the
// others when all of Config.Join is stale. Nothing is concluded from them: who is at an address says so itself. So a file that is
// lost, damaged or cannot be written is no reason to stop.
type addresses struct {
	h *home

	mu    sync.Mutex // guards the fields below
	own   string     // of this node's last process that wrote it
	peers map[string]string
}

// addressFile is the file's content.
type addressFile struct {
	Own   string            `json:"own"`
	Peers map[string]string `json:"peers,omitempty"` // by node
}

// loadAddresses reads what is remembered. The error says why that is nothing.
func loadAddresses(h *home) (*addresses, error) {
	a := &addresses{h: h, peers: map[string]string{}}
	f, err := h.fs.Open(h.path(addrsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("open %s: %w", h.path(addrsFile), err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAddrsFile))
	if err != nil {
		return a, fmt.Errorf("read %s: %w", h.path(addrsFile), err)
	}
	var file addressFile
	if err := json.Unmarshal(b, &file); err != nil {
		return a, fmt.Errorf("read %s: %w", h.path(addrsFile), err)
	}
	a.own = file.Own
	for _, id := range slices.Sorted(maps.Keys(file.Peers))[:min(len(file.Peers), maxAddresses)] {
		a.peers[id] = file.Peers[id]
	}
	return a, nil
}

// all are the addresses of others.
func (a *addresses) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.peers))
}

// former is where this node's last process was, "" if that is not known.
func (a *addresses) former() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own
}

// update takes what is known now and writes the file if that is news. One goroutine at a time calls it.
func (a *addresses) update(own string, peers map[string]string) error {
	if !a.take(own, peers) {
		return nil
	}
	b, err := json.Marshal(addressFile{own, peers})
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	return a.h.replace(addrsFile, append(b, '\n'))
}

// take says whether something is news. If it then cannot be written down, this process knows it all the same.
func (a *addresses) take(own string, peers map[string]string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == own && maps.Equal(a.peers, peers) {
		return false
	}
	a.own, a.peers = own, peers
	return true
}

// merge is what to remember of peers after gossip saw members of the cluster: their present addresses, and for those that are gone the last
// ones. Of too many those of the nodes that first has stay.
func merge(peers map[string]string, members []membership.Member, self, cluster string, first []string) map[string]string {
	next := maps.Clone(peers)
	for _, m := range members {
		switch {
		case m.ID == self:
		case m.Cluster != cluster || m.State == membership.Left:
			delete(next, m.ID)
		default:
			next[m.ID] = m.Addr
		}
	}
	for _, id := range slices.Sorted(maps.Keys(next)) {
		if len(next) <= maxAddresses {
			break
		}
		if !slices.Contains(first, id) {
			delete(next, id)
		}
	}
	return next
}

// openAddresses reads what is remembered and writes this process's own address, before anybody hears of it: a copy of the directory
// that is made from now on knows where the original is.
func (n *Node) openAddresses() (former string) {
	var err error
	if n.net.known, err = loadAddresses(n.home); err != nil {
		n.log.Warn("the cluster's last addresses are not known", "err", err)
	}
	former = n.net.known.former()
	n.keepAddresses(n.net.known.peersNow())
	return former
}

func (a *addresses) peersNow() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.peers)
}

func (n *Node) keepAddresses(peers map[string]string) {
	if err := n.net.known.update(n.Addr(), peers); err != nil {
		n.log.Warn("cannot write the cluster's addresses down", "err", err)
	}
}

// remember keeps the file up to date until ctx ends.
func (n *Node) remember(ctx context.Context) {
	plan := n.cluster.Load().plan
	for wait := rememberAfter; ; wait = rememberEvery {
		changed := n.net.gossip.Changed()
		n.keepAddresses(merge(n.net.known.peersNow(), n.net.gossip.Members(), n.ID(), plan.GetCluster(), plan.GetNodes()))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, wait) {
			n.keepAddresses(merge(n.net.known.peersNow(), n.net.gossip.Members(), n.ID(), plan.GetCluster(), plan.GetNodes()))
			return
		}
	}
}
