package nodetest

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
)

// Options set up a Cluster; nil and the zero value are the defaults.
type Options struct {
	// Shards is the number of user shards, zero for 1. Each costs time: keep it small.
	Shards int
	// Replicas is how many nodes keep a copy of each shard, zero for 3, or for 1 when there are fewer than 3 nodes.
	Replicas int
	// Bootstrap is how many nodes found the cluster, zero for as many as New makes.
	Bootstrap int
	// Config changes the config of node i, of those that New makes and those of Add and Clone, before each of its starts. It may be nil.
	Config func(i int, c *node.Config)
	// Env changes the surroundings of node i before each of its starts. It may be nil, and is for this module's own tests: nobody else can name
	// its type.
	Env func(i int, e *env.Env)
	// Formats are the newest cluster format versions that the nodes' binaries speak, by index; zero or missing: as built. See Binary.
	Formats []uint32
	// Seed seeds delays and losses. One seed gives one distribution, not one exact run.
	Seed uint64
	// Delay and Jitter are what each message takes: Delay plus a random part of Jitter. Zero for 500 µs each.
	Delay, Jitter time.Duration
	// Log is the level from which on the nodes' logs go to the test's log, zero for hclog.Error.
	Log hclog.Level
}

// Default times of a network: those of a data centre.
const (
	defaultDelay  = 500 * time.Microsecond
	defaultJitter = 500 * time.Microsecond
)

// withDefaults returns the options for a cluster of n nodes with the zero fields filled in.
func (o *Options) withDefaults(n int) Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Shards == 0 {
		d.Shards = 1
	}
	if d.Replicas == 0 {
		d.Replicas = 3
		if n < 3 {
			d.Replicas = 1
		}
	}
	if d.Bootstrap == 0 {
		d.Bootstrap = n
	}
	if d.Delay == 0 {
		d.Delay = defaultDelay
	}
	if d.Jitter == 0 {
		d.Jitter = defaultJitter
	}
	if d.Log == hclog.NoLevel {
		d.Log = hclog.Error
	}
	return d
}
