// Package registry tells dragonboat which node runs a replica.
//
// Raft membership holds node UUIDs, not addresses. So what Resolve gives dragonboat as the target of a replica is the UUID of
// its node, and the Raft transport turns that into an address each time it dials. A node may come back anywhere without any
// change of membership.
//
// There are two sources with different weight. Add is called by dragonboat with what a replica's log says, and is believed;
// replica ids are never reused, so the first answer is also the last. Learn is called for messages that arrive: a replica
// that has just joined has no log yet and must know where to send its answers. What was only learned is replaced by what a
// log says, and never replaces anything.
//
// It knows nothing of addresses, gossip or connections.
package registry
