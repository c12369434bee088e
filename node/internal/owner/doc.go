// Package owner holds the decisions of a shard's owner: when a leader is confirmed, how long it waits before it
// claims, when a claim makes it the owner, how long its lease is good, and when a session is renewed in memory,
// renewed through the log, checkpointed or expired.
//
// Everything here is pure: no clock, no network, no goroutine. Times are durations since the machine's boot on a
// clock that runs through suspend, and enter as arguments. The node calls these functions with real time; the model
// checker calls the same functions with small numbers. The rules came out of that checker: change one only with it.
// Rules that hold when an entry is applied live in package fsm.
package owner
