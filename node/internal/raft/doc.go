// Package raft runs this node's Raft groups on dragonboat. It hides dragonboat's types and keeps the rest of the node away
// from its panics: every call passes a gate that is drained before the host is closed.
package raft
