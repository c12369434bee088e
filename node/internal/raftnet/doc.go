// Package raftnet is dragonboat's transport over transport.Transport: Raft messages and snapshots between nodes.
//
// Targets are node UUIDs. The address of a UUID is asked for at every dial and watched afterwards, so a node may move at any
// time: the connection notices and dials again by itself.
//
// # Messages
//
// Raft repeats what is lost, so messages are sent or dropped, never queued here and never an error: an error would trip
// dragonboat's breaker, which then refuses the target for up to 750 ms after it is back. A connection that breaks is dialled
// again in the background, after 20 ms at first and 500 ms at most. A send blocks only while the peer takes bytes, and at most
// two seconds without any progress. A ping every second tells a peer that has silently vanished: it is given up after 3 s,
// instead of whenever TCP finds out.
//
// # Snapshots
//
// Each snapshot has a connection of its own. A chunk is acknowledged when the receiver has taken it, so success of the last
// one means that the snapshot is there. Errors are returned; dragonboat sends the snapshot again.
//
// # Who is who
//
// A connection begins with a hello: the cluster, the node it comes from and which process of it, and the node it is meant for.
// The receiver answers whether that is right. So a foreign cluster is refused with a reason that both sides log, messages never
// reach another node that came up at a reused address, and a process that runs in a copy of a node's directory is told to stop:
// Config.Admit knows the right one. What arrives over older connections of a process that was replaced is not taken. A message counts as its connection's node's, whatever it says itself.
//
// # What arrives
//
// Sizes are bounded before anything is allocated. What cannot be decoded closes its connection, with one line in the log. So
// do messages that dragonboat would answer with a panic: without a receiver, or of types that are never sent. A panic of
// dragonboat's handlers, such as one for a full disk while a snapshot arrives, closes the connection and not the process.
//
// It encrypts nothing; the transport does.
package raftnet
