// Package memnet is a transport in memory, with faults, for tests. It has no sockets and no goroutines of its own: all
// waits are on package sync's condition variables, channels and timers, so it runs in testing/synctest bubbles, in
// virtual time. It is not for production.
//
// A Network holds endpoints and the state of the paths between them. Each fault names addresses as they were given to
// or returned by Listen, applies to one direction unless it says otherwise, takes effect at one instant for everything,
// connections that exist included, and lasts until it is healed, also across a Close and a new Listen of the address.
//
// # How it behaves
//
// Streams behave like TCP. They keep order and lose nothing: what a cut, a hold or a loss swallows is sent again once the
// path is open, unless the connection was reset meanwhile. Buffers are bounded: a writer whose peer does not read, or
// whose path is cut, blocks after 256 KiB. Closing an endpoint lets its peers read what is on the way, then io.EOF;
// that news travels the path too and does not pass a cut. Dials to an address where nobody listens are refused, dials
// into a cut wait until it is healed or the context ends.
//
// Packets behave like UDP: they vanish in a cut or by loss, may overtake each other when there is jitter, and are
// dropped when the receiver's queue is full.
//
// Traffic of an endpoint with itself is subject to Hold only.
package memnet
