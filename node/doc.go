// Package node gives a service its own coordination, inside its own processes: shard ownership, locks with fencing tokens
// and config. It is the only package that a user imports.
//
// A Node is one process's part. Nodes find each other by gossip, form a Raft group for each shard and keep its state on
// their disks. Each shard has at most one owner at any instant; only it serves and changes the shard, and every
// write is stamped with its token.
//
// What it is not: a database, a queue, or a way around the window between a check and an effect outside. A process can be
// paused at any instant for any time, so what a hold protects must check the token that goes with each write.
//
// Every error of a write says either that it was not done, or, as ErrUnknown, that it may have been done. Calls block until
// they are answered or their ctx ends; a ctx without a deadline gets Config.RequestTimeout, but for the wait
// for a lock that another holds. Everything is safe for concurrent use.
package node
