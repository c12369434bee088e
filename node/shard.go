package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// A Shard is a handle to one shard, or a view of one. It is cheap, immutable and safe for concurrent use, and works on every
// node, wherever the shard's owner is.
type Shard struct {
	n      *Node
	id     int      // 0: by key
	key    string   // resolved once the number of shards is known
	in     *session // of the view; nil: the implicit one
	guards []*fsmpb.Guard
	of     string        // UUID of the cluster that the guards are of, "" if there are none
	stale  time.Duration // of the view: reads may be that old
	err    error         // of the view: every call fails with it
}

// Shard returns the shard that the key belongs to. All nodes agree on it, for ever. It never fails: what is wrong, a call says.
func (n *Node) Shard(key string) *Shard { return &Shard{n: n, key: key} }

// ShardAt returns the shard with that number, 1..Config.Shards. A number out of bounds makes every call fail with ErrInvalid.
func (n *Node) ShardAt(id int) *Shard {
	s := &Shard{n: n, id: id}
	if id < 1 || id > maxShards {
		s.err = fmt.Errorf("%w: shard %d: give 1 to the cluster's number of shards", ErrInvalid, id)
	}
	return s
}

// Shards returns the shards in the order of their numbers. It is empty until the node belongs to a cluster, see Ready.
func (n *Node) Shards() func(yield func(*Shard) bool) {
	return func(yield func(*Shard) bool) {
		cl := n.cluster.Load()
		if cl == nil {
			return
		}
		for _, g := range cl.groups[1:] {
			if !yield(&g.shard) {
				return
			}
		}
	}
}

// ID is the shard's number, 1..Config.Shards; 0 for a shard given by key while the number of shards is not known yet.
func (s *Shard) ID() int {
	if s.id != 0 {
		return s.id
	}
	if cl := s.n.cluster.Load(); cl != nil {
		return shardOf(s.key, cl.shards())
	}
	return 0
}

// Owned returns this node's ownership of the shard, if it has one that is trusted now. It asks nobody.
func (s *Shard) Owned() (Ownership, bool) {
	g := s.n.group(s.ID())
	if g == nil || g.local == nil {
		return Ownership{}, false
	}
	o := g.local.own.Load()
	if o == nil || o.hold.check() != nil {
		return Ownership{}, false
	}
	return Ownership{o: o}, true
}

// Guarded returns a view whose every write is done only while the grant of h, which must be of this shard, is the current one;
// else the write fails with ErrFenced and changes nothing. The state machine checks it when the write is applied, so no
// pause or delay gets around it. What is acquired through the view stays guarded: Proclaim, Transfer and the record of a run's result are
// refused too, while giving back never is. Views combine. A hold of no use as a guard makes every call fail with ErrInvalid, one of another
// cluster with ErrForeignCluster: tokens of two clusters say nothing about each other.
func (s *Shard) Guarded(h Hold) *Shard {
	v := *s
	pb, g, err := guardOf(h)
	if err != nil {
		v.err = errors.Join(s.err, err)
		return &v
	}
	v.guards = append(slices.Clone(s.guards), pb)
	of := g.n.cluster.Load().plan.GetCluster()
	switch {
	case v.n.otherCluster(of):
		v.err = errors.Join(s.err, fmt.Errorf("%w: guard of cluster %s", ErrForeignCluster, of))
	case s.of != "" && s.of != of:
		v.err = errors.Join(s.err, fmt.Errorf("%w: guards of the clusters %s and %s", ErrForeignCluster, s.of, of))
	case v.ID() != 0 && int(g.id) != v.ID():
		v.err = errors.Join(s.err, fmt.Errorf("%w: guard of shard %d used in shard %d", ErrInvalid, g.id, v.ID()))
	}
	v.of = of
	return &v
}

// In returns a view through which what is acquired or written hangs on x, a session of this node with this shard. Of several sessions the last
// counts; LockOptions.TTL must be zero. A zero session, or another node's, makes every call fail with ErrInvalid; after x has ended every
// call that writes fails with ErrLost, also one that waits.
func (s *Shard) In(x *Session) *Shard {
	v := *s
	switch {
	case x == nil || x.s == nil:
		v.err = errors.Join(s.err, fmt.Errorf("%w: a zero session", ErrInvalid))
	case x.s.g.n != s.n:
		v.err = errors.Join(s.err, fmt.Errorf("%w: session of node %q used at node %q", ErrInvalid, x.s.g.n.c.Name, s.n.c.Name))
	case v.ID() != 0 && v.ID() != int(x.s.g.id):
		v.err = errors.Join(s.err, fmt.Errorf("%w: session of shard %d used in shard %d", ErrInvalid, x.s.g.id, v.ID()))
	default:
		v.in = x.s
	}
	return &v
}

// session is the session that the view's calls use, and whether another may take its place once it has ended.
func (s *Shard) session(ctx context.Context, g *group) (x *session, implicit bool, err error) {
	if s.in != nil {
		if !s.in.good() {
			return nil, false, s.n.sessionEnded()
		}
		return s.in, false, nil
	}
	x, err = g.sessions.get(ctx)
	return x, true, err
}

// otherCluster says that the node belongs to a cluster, and not to that one.
func (n *Node) otherCluster(of string) bool {
	cl := n.cluster.Load()
	return cl != nil && cl.plan.GetCluster() != of
}

// guardOf is the guard that a hold makes, and the shard that it is of.
func guardOf(h Hold) (pb *fsmpb.Guard, g *group, err error) {
	var held *grant
	switch x := h.(type) {
	case *Lock:
		if x != nil {
			held = x.grant
		}
	case *Permit:
		if x != nil {
			held = x.grant
		}
	case *Leadership:
		if x != nil {
			held = x.grant
		}
	case *Run:
		if x != nil {
			held = x.grant
		}
	case *Session:
		if x != nil && x.s != nil {
			return &fsmpb.Guard{Kind: fsmpb.Guard_SESSION, Token: uint64(x.Token())}, x.s.g, nil
		}
	case Ownership:
		if x.o != nil {
			return &fsmpb.Guard{Kind: fsmpb.Guard_OWNERSHIP, Token: uint64(x.Token())}, x.o.l.g, nil
		}
	}
	if held != nil {
		return held.guard(), held.s.g, nil
	}
	return nil, nil, fmt.Errorf("%w: guard of type %T has no grant", ErrInvalid, h)
}

// group waits until the node belongs to a cluster and returns the shard's group.
func (s *Shard) group(ctx context.Context) (*group, error) {
	if s.err != nil {
		return nil, s.err
	}
	cl, err := s.n.waitCluster(ctx)
	if err != nil {
		return nil, err
	}
	id := s.ID()
	switch of := cl.plan.GetCluster(); {
	case id > cl.shards():
		return nil, fmt.Errorf("%w: shard %d: the cluster has 1 to %d", ErrInvalid, id, cl.shards())
	case s.of != "" && s.of != of: // the node belonged to none when the view was made
		return nil, fmt.Errorf("%w: guard of cluster %s used in cluster %s", ErrForeignCluster, s.of, of)
	case s.in != nil && s.in.g != cl.groups[id]:
		return nil, fmt.Errorf("%w: session of shard %d used in shard %d", ErrInvalid, s.in.g.id, id)
	}
	return cl.groups[id], nil
}

// group is the shard's group, nil while the node belongs to no cluster or if there is none.
func (n *Node) group(id int) *group {
	cl := n.cluster.Load()
	if cl == nil || id < 0 || id >= len(cl.groups) {
		return nil
	}
	return cl.groups[id]
}

// waitCluster waits until the node belongs to a cluster.
func (n *Node) waitCluster(ctx context.Context) (*cluster, error) {
	select {
	case <-n.founded:
		return n.cluster.Load(), nil
	default:
	}
	select {
	case <-n.founded:
		return n.cluster.Load(), nil
	case <-ctx.Done():
		return nil, gaveUp(ctx, "wait for a cluster", false)
	}
}

// write commits op under the node's session with the shard. A session that ended before anything was done is replaced.
func (s *Shard) write(ctx context.Context, what string, op *fsmpb.Op) (*fsmpb.Result, error) {
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	for {
		x, implicit, err := s.session(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		res, err := x.call(ctx, what, s.guards, op)
		if errors.Is(err, errNoSession) {
			if implicit {
				continue
			}
			return nil, fmt.Errorf("%s: %w", what, s.n.sessionEnded())
		}
		return checked(what, res, err)
	}
}

// call commits op under the session. It ends the session if it turns out to be gone.
func (s *session) call(ctx context.Context, what string, guards []*fsmpb.Guard, op *fsmpb.Op) (*fsmpb.Result, error) {
	seq, low := s.seqs.begin()
	defer s.seqs.finish(seq)
	op.Session, op.Seq, op.Low, op.Guards = uint64(s.id()), seq, low, guards
	res, err := s.g.call(ctx, what, op)
	if errors.Is(err, errNoSession) {
		s.end(ErrLost)
	}
	return res, err
}

// checked turns the results that every write may have into errors.
func checked(what string, res *fsmpb.Result, err error) (*fsmpb.Result, error) {
	if err != nil {
		return nil, err
	}
	switch res.GetStatus() {
	case fsmpb.Result_FENCED:
		return nil, fmt.Errorf("%s: %w", what, ErrFenced)
	case fsmpb.Result_INVALID:
		return nil, fmt.Errorf("%s: %w: %s", what, ErrInvalid, res.GetReason())
	case fsmpb.Result_CONFLICT:
		return nil, fmt.Errorf("%s: %w: it is at revision %d", what, ErrConflict, res.GetRecord().GetMod())
	}
	return res, nil
}
