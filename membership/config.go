package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/transport"
)

// Defaults and bounds. A dead node is noticed about 3 seconds after it died in a small cluster: half a second until
// somebody probes it, half a second for the probe, and two for others to vouch for it.
const (
	defaultProbeInterval = 500 * time.Millisecond
	defaultProbeTimeout  = 250 * time.Millisecond
	minSecret            = 16 // bytes
)

// A Config sets up a Membership. Self and Transport are required.
type Config struct {
	// Self is the node's own record. It counts as one start: Incarnation must be higher than at any start before.
	Self Record
	// Join lists addresses to find others at: host:port, the host an IP address or a DNS name that may have several. They
	// are tried for as long as the node lives. The node's own address may be among them.
	Join []string
	// Peers, if set, returns further addresses to try for ever, such as the last known ones of Raft members, after a second
	// and then ever less often, down to every 15 seconds. It is never called under a lock, and must not block.
	Peers func() []string
	// Lookup resolves a DNS name to IP addresses. Nil means net.DefaultResolver.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Transport carries the gossip: its packets, and its connections of transport.Gossip. It stays the caller's to close,
	// after Close.
	Transport transport.Transport
	// Secret encrypts and authenticates all gossip; at least 16 bytes. Nil means neither.
	Secret []byte
	// OldSecrets are accepted too, but not used to send. To replace a secret, restart all nodes one by one three times: with
	// the new one here, then as Secret with the old one here, then without the old one.
	OldSecrets [][]byte
	// Logger gets what operators should know; the gossip library's own messages mostly at Debug and Trace. Nil discards.
	Logger hclog.Logger
	// ProbeInterval is how often this node probes one other member, ProbeTimeout how long it waits for a direct answer
	// before it asks others to try. Zero means 500 ms and 250 ms. ProbeTimeout must be shorter.
	ProbeInterval, ProbeTimeout time.Duration
	// OnConflict, if set, is told of each other process that claims this node's ID at the same incarnation or a later one,
	// and again every ten seconds while it is heard of. It is called from a goroutine of the Membership, which Close waits for, and not under a lock; so it must not call
	// Close or Leave itself.
	OnConflict func(Record)
}

// check reports all that is wrong with the configuration.
func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := c.Self.check(); err != nil {
		bad("Self: %w", err)
	}
	if c.Transport == nil {
		bad("Transport: is required")
	}
	for _, addr := range c.Join {
		if err := checkAddr(addr); err != nil {
			bad("Join: %w", err)
		}
	}
	if c.Secret == nil && len(c.OldSecrets) > 0 {
		bad("OldSecrets: %d given without a Secret", len(c.OldSecrets))
	}
	if c.Secret != nil && len(c.Secret) < minSecret {
		bad("Secret: %d bytes, at least %d are required", len(c.Secret), minSecret)
	}
	for i, s := range c.OldSecrets {
		if len(s) < minSecret {
			bad("OldSecrets[%d]: %d bytes, at least %d are required", i, len(s), minSecret)
		}
	}
	if c.ProbeInterval < 0 || c.ProbeTimeout < 0 || c.ProbeTimeout >= c.ProbeInterval {
		bad("ProbeTimeout: %v must be positive and below ProbeInterval %v", c.ProbeTimeout, c.ProbeInterval)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(errs...))
}

// withDefaults fills in what was left zero.
func (c Config) withDefaults() Config {
	if c.ProbeInterval == 0 {
		c.ProbeInterval = max(defaultProbeInterval, 2*c.ProbeTimeout)
	}
	if c.ProbeTimeout == 0 {
		c.ProbeTimeout = min(defaultProbeTimeout, c.ProbeInterval/2)
	}
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Peers == nil {
		c.Peers = func() []string { return nil }
	}
	if c.OnConflict == nil {
		c.OnConflict = func(Record) {}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	c.Self = c.Self.clone()
	return c
}
