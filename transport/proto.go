package transport

import "strconv"

// Backlog is how many connections of one protocol wait for Accept. More are closed.
const Backlog = 64

// Protos returns the known protocols, for implementations of Transport: each has a backlog of its own. The caller owns
// the slice.
func Protos() []Proto { return []Proto{Raft, RPC, Gossip, Snapshot} }

// String returns the protocol's name in lower case, for logs.
func (p Proto) String() string {
	switch p {
	case Raft:
		return "raft"
	case RPC:
		return "rpc"
	case Gossip:
		return "gossip"
	case Snapshot:
		return "snapshot"
	}
	return "proto(" + strconv.Itoa(int(p)) + ")"
}
