package raft

import "errors"

// What may become of a request.
var (
	// ErrClosed: the host is closed; nothing was done.
	ErrClosed = errors.New("raft host is closed")
	// ErrNotAppended: the request was refused or dropped before it reached the log; it was not and will not be done.
	ErrNotAppended = errors.New("not appended to the log")
	// ErrOutcomeUnknown: no answer came in time, or the replica stopped meanwhile; the entry may be applied even later.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrDataMissing: the replica ran here before and its Raft log is gone. Starting it anew could lose acknowledged
	// entries, since it would vote again without knowing what it voted for.
	ErrDataMissing = errors.New("raft log of a known replica is missing")
	// ErrForeignLog: the Raft log is another node's or another cluster's.
	ErrForeignLog = errors.New("raft log is of another node or cluster")
	// ErrOpenFailed: the Raft library gave up without saying why; its log says more.
	ErrOpenFailed = errors.New("raft host did not start")
)
