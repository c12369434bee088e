//go:build unix

package main

import (
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
	"github.com/oarlock/oarlock/node"
)

// What a process reports, one JSON object a line on its stdout.
const (
	isOpen    = "open"    // the node listens at Addr
	isReady   = "ready"   // joined, caught up, every shard has an owner; or Err
	owns      = "owns"    // the job of Shard begins under Token, and found the customers Billed
	lost      = "lost"    // the job of Shard under Token was told to end, because of Err
	charged   = "charged" // Customer was billed under Token
	refused   = "refused" // the ledger refused a charge of Customer under Token
	isHeld    = "held"    // about to write a charge of Customer, and waiting for the order to go on
	isStill   = "still"   // not writing anything, and waiting for the order to go on
	wrote     = "wrote"   // the put of Key was acknowledged; or Err
	read      = "read"    // Key has Value; or Err
	hasFailed = "failed"  // the node cannot go on, because of Err
)

// A report is what a process says. Which fields it has depends on its kind.
type report struct {
	Kind     string     `json:"kind"`
	Addr     string     `json:"addr,omitempty"`
	Shard    int        `json:"shard,omitempty"`
	Token    node.Token `json:"token,omitempty"`
	Customer string     `json:"customer,omitempty"`
	Billed   []string   `json:"billed,omitempty"`
	Key      string     `json:"key,omitempty"`
	Value    string     `json:"value,omitempty"`
	Err      string     `json:"err,omitempty"`
	NoQuorum bool       `json:"noQuorum,omitempty"` // Err is node.ErrNoQuorum
	Unknown  bool       `json:"unknown,omitempty"`  // Err is node.ErrUnknown

	from *procs.Member // who says it; set where it is received
}

// What a process is told to do, one JSON object a line on its stdin. When stdin ends, the process ends.
const (
	doBill     = "bill"      // charge the first Customers customers, those of the shards it owns
	doAwait    = "await"     // report when ready
	doHoldNext = "hold-next" // report held instead of writing the next charge, and wait for go-on
	doStill    = "still"     // finish what is being written, report still, and wait for go-on
	doGoOn     = "go-on"
	doPut      = "put" // write Value under Key into the cluster's config
	doGet      = "get" // read Key
)

// An order is what a process is told to do.
type order struct {
	Do        string `json:"do"`
	Customers int    `json:"customers,omitempty"`
	Key       string `json:"key,omitempty"`
	Value     string `json:"value,omitempty"`

	Within time.Duration `json:"within,omitempty"` // put and get give up after this time
}
