package rpc

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options sets up a Client or a Server; nil, and each zero field, means the default. Both sides of a cluster use the
// same values for MaxBody and Dead.
type Options struct {
	// MaxBody is the longest request or answer in bytes. Default 8 MiB.
	MaxBody int
	// Dead is how long a peer may be silent before its connection is broken; a ping goes out every third of it.
	// Default 3 s.
	Dead time.Duration
	// Idle is how long a client keeps a connection without calls. Default 1 min.
	Idle time.Duration
	// DialTimeout bounds a dial, whatever the contexts of those who wait for it. Default 2 s.
	DialTimeout time.Duration
	// DialRest is how long calls to an address fail at once after a failed dial. Default 50 ms.
	DialRest time.Duration
	// MaxInFlight is how many handlers of one connection run at a time. Default 4096.
	MaxInFlight int
	// Logger gets broken connections at debug level and violations of the protocol as warnings. Nil: nothing.
	Logger hclog.Logger
}

// pings is how many pings fit into Options.Dead.
const pings = 3

// withDefaults returns a copy with the zero fields filled in.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.MaxBody = or(c.MaxBody, 8<<20)
	c.Dead = or(c.Dead, 3*time.Second)
	c.Idle = or(c.Idle, time.Minute)
	c.DialTimeout = or(c.DialTimeout, 2*time.Second)
	c.DialRest = or(c.DialRest, 50*time.Millisecond)
	c.MaxInFlight = or(c.MaxInFlight, 4096)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// or is v, or def if v is zero or negative.
func or[T int | time.Duration](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}
