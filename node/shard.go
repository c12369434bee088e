package node

import (
	"context"
	"errors"
	"fmt"

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
	err    error // of the view: every call fails with it
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
// pause or delay gets around it. Views combine. A hold of no use as a guard makes every call fail with ErrInvalid.
func (s *Shard) Guarded(h Hold) *Shard {
	v := *s
	v.guards = append(append([]*fsmpb.Guard(nil), s.guards...), nil)
	g, shard, err := guardOf(h)
	switch {
	case err != nil:
		v.err = err
	case v.ID() != 0 && shard != v.ID():
		v.err = fmt.Errorf("%w: guard of shard %d used in shard %d", ErrInvalid, shard, v.ID())
	}
	v.guards[len(v.guards)-1] = g
	return &v
}

// In returns a view through which what is acquired or written hangs on x, which must be of this shard. Views combine. A zero session
// makes every call fail with ErrInvalid; after x has ended every call fails with ErrLost.
func (s *Shard) In(x *Session) *Shard {
	v := *s
	switch {
	case x == nil || x.s == nil:
		v.err = fmt.Errorf("%w: a zero session", ErrInvalid)
	case v.ID() != 0 && v.ID() != int(x.s.g.id):
		v.err = fmt.Errorf("%w: session of shard %d used in shard %d", ErrInvalid, x.s.g.id, v.ID())
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

func guardOf(h Hold) (g *fsmpb.Guard, shard int, err error) {
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
			return &fsmpb.Guard{Kind: fsmpb.Guard_SESSION, Token: uint64(x.Token())}, int(x.s.g.id), nil
		}
	case Ownership:
		if x.o != nil {
			return &fsmpb.Guard{Kind: fsmpb.Guard_OWNERSHIP, Token: uint64(x.Token())}, int(x.o.l.g.id), nil
		}
	}
	if held != nil {
		return held.guard(), int(held.s.g.id), nil
	}
	return nil, 0, fmt.Errorf("%w: guard of type %T has no grant", ErrInvalid, h)
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
	if id > cl.shards() {
		return nil, fmt.Errorf("%w: shard %d: the cluster has 1 to %d", ErrInvalid, id, cl.shards())
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
