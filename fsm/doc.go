// Package fsm is the replicated state machine of a shard: commands in, results and events out, state in Pebble. It
// holds the shard's last claim, sessions, locks, jobs and config records, and decides at apply what is allowed: one owner's
// stamp at a time, one application of each operation, one holder of each lock.
//
// It is deterministic: no clock, no network, no goroutine and nothing of Raft. Every replica that applies the same
// entries has the same state (Machine.Hash says so) and gives the same results. Time enters only as numbers in
// commands; that an owner's lease or a session has run out is decided elsewhere, by the owner.
//
// # Contract
//
// Order: entries are applied in the order of their index, each once; what is at or below the applied index is left
// out. A call of Apply is one write to the storage, with the applied index in it, so state and index never part.
// Apply does not sync: after a crash the machine may be behind, never between, and the log has the rest. Sync makes it
// durable.
//
// Commands: what is not well formed, not allowed or too large becomes a result, never an error. What the machine does
// not know, a newer version or an unknown field, halts it before that entry: others may understand it, and to skip it
// would be to differ from them for ever. Versions rise by a Raise that is applied when every replica knows them.
//
// Holds: one queue engine serves mutexes, readers and writers, semaphores, several names at once, elections and run-once
// jobs. Queues are first come, first served; only living sessions are granted; each grant has a fresh token and is released
// by it. What an owner has to time (a bounded hold that has started, the grace after a holder's death) is state, so that the
// next owner finds it, but time itself is the owner's: it sends Force and EndGrace. A name that is over leaves no state,
// but the record of a job, which JobForget removes.
//
// Config: each operation that changes records does so under one revision, whole: a transaction, a prefix that is deleted, the
// records that go with an ended session. Each change is kept with what was there before, until a Compact, so that a reader
// can have all changes from a revision on, or the records as of one. That a record's TTL has run out is the owner's to say.
//
// Reads: from any goroutine, while Apply runs. They see whole calls of Apply. Config records and their history are read from the
// storage and wait for nobody; everything else is mirrored in memory and waits for a running Apply, which holds its lock until
// the storage has the change too. So no two reads, of whatever kind, go back in time.
//
// Failure: an error of the storage in the middle of an Apply ends the machine (ErrFailed); open it again. Restore
// leaves the old state or the new one, whole, also through a crash.
//
// The rules that hold at apply (Claim.Accepts, Claim.AcceptsStamp, Life, SessionLimit) are pure functions on small
// values, so that a model checker calls the same code.
package fsm
