package node

import "math"

// A seat is how a node that has a replica of a shard stands towards owning it.
type seat struct {
	node string
	runs bool // an Own runs there, which matters for user shards
	room int  // for how many more shards; of the shard's owner: not 0 if every Own there runs for this one
}

// Ranks of seats: better is higher.
const (
	rankIdle = iota // no Own runs there
	rankFull        // one runs, and has no room
	rankFree
)

func (s seat) rank() int {
	switch {
	case !s.runs:
		return rankIdle
	case s.room == 0:
		return rankFull
	default:
		return rankFree
	}
}

// choose is the node that should own a shard which self owns, or nobody that counts, among its replicas' seats, the preferred one first: "" if there
// is none. It moves a shard to a better seat, and to an equal one only if that is preferred and this causes no moves back: not from one full
// node to another, and not into the last place of a node, for which another owner may have chosen it, too.
func choose(seats []seat, self string) string {
	best, mine := rankIdle, -1
	for _, s := range seats {
		best = max(best, s.rank())
		if s.node == self {
			mine = s.rank()
		}
	}
	if mine == rankFull && best == rankFull {
		return self
	}
	for _, s := range seats {
		if s.rank() != best {
			continue
		}
		if s.node == self || mine != best || best == rankIdle || s.room != 1 {
			return s.node
		}
	}
	return ""
}

// mySeat is this node's seat of a shard that it owns.
func (n *Node) mySeat(g *group) seat {
	runs, _ := n.owning.room()
	s := seat{node: n.ID(), runs: runs && g.id != 0, room: math.MaxInt}
	if n.owning.waits(g) {
		s.room = 0
	}
	return s
}

// seatOf is another node's seat, by gossip.
func (n *Node) seatOf(g *group, node string) seat {
	s := seat{node: node}
	if m, ok := n.net.gossip.Member(node); ok && m.Runs && g.id != 0 {
		s.runs, s.room = true, m.Room
		if s.room < 0 {
			s.room = math.MaxInt
		}
	}
	return s
}
