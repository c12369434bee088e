// Package rpc makes calls between nodes over a transport.Transport: short requests with one answer each, many at a time
// on one connection per peer. It is not a general RPC framework: methods are numbers, bodies are bytes, and there is no
// discovery, no retry and no load balancing; callers above know what may be repeated.
//
// # Contract
//
// Outcome: a failed Call says whether the handler may have run. ErrNotSent: it certainly has not and will not.
// ErrInterrupted: it may have. A *RemoteError: it has, and this is its answer. Nothing is ever sent twice.
//
// Waiting: a Call ends with its context at the latest, whatever the peer or the network does. Its remaining time and its
// cancellation travel to the handler's context. A connection from which no byte has come for Options.Dead (each side sends
// one ping every third of that) is broken and replaced at the next call. One slow, full or dead peer never delays calls to
// another.
//
// Order: none. Requests of one connection run concurrently, in a goroutine each, at most Options.MaxInFlight; beyond that
// the connection is not read, and the callers wait.
//
// Bounds: bodies by Options.MaxBody, before anything is allocated; queued requests by a megabyte, then callers wait.
//
// # On the wire
//
// Frames of package transport (length, CRC-32C), each holding one message: a kind byte, the call's id, and what the
// kind needs. Both sides gather what is queued and write it at once. Kinds from 16 on are free for streams. An unknown
// kind breaks the connection, so a new one needs a version agreed above this package.
package rpc
