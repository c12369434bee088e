package node

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

// Defaults and bounds of a Config.
const (
	defaultShards          = 16
	maxShards              = 512
	defaultReplicas        = 3
	defaultSessionTTL      = 5 * time.Second
	minSessionTTL          = time.Second
	maxSessionTTL          = time.Hour
	defaultElectionTimeout = time.Second
	minElectionTimeout     = 300 * time.Millisecond
	maxElectionTimeout     = time.Minute
	defaultRequestTimeout  = 10 * time.Second
	defaultDrainTimeout    = 10 * time.Second
	defaultReplaceAfter    = 5 * time.Minute
	minReplaceAfter        = 10 * time.Second
	defaultStallTimeout    = 5 * time.Second
	defaultHistory         = 100_000
	minHistory             = 100
	maxHistory             = 10_000_000
	maxName                = 64
	maxBootstrap           = 1024
	maxTags                = 64
	maxRecordText          = 400 // bytes of the gossiped record that name, zone, address and tags may share
	tagCost                = 8   // bytes of it for a tag, on top of key and value
)

// TLSConfig replaces the certificates that are derived from Secret by the user's own. It is not supported yet: Open
// refuses a Config that sets it.
type TLSConfig struct {
	Server, Client *tls.Config
}

// Config says who a node is, where it lives and whom it joins. Only Name, Dir and Bind are always required. Open reports
// all that is wrong with it at once.
type Config struct {
	// Name is what people call the node, 1 to 64 printable bytes. It need not be unique and may change at a restart: the
	// node's identity is a UUID in Dir.
	Name string
	// Dir is the node's directory, made if it does not exist. It must be on a local disk whose sync can be trusted, and
	// belong to this node alone: a copy of it must never be started, and is refused with ErrDirLocked once another node or the
	// original notices.
	Dir string
	// Bind is the host:port to listen on: one TCP and one UDP port of the same number. Port 0 picks a free one. A wildcard
	// host needs Advertise, unless the machine has just one address that is not loopback.
	Bind string
	// Advertise is the host:port that peers use, Bind's address if empty. Port 0 stands for the port bound.
	Advertise string
	// Zone names the failure domain, such as a rack or an availability zone. It may be empty.
	Zone string
	// Join has addresses of other nodes: host:port, where host may be a DNS name with several addresses. They are tried for
	// ever, also after the node has joined, so that a healed split heals. A node that founds a cluster alone needs none.
	Join []string
	// Bootstrap is how many nodes found a cluster: 1, or at least Replicas, and more than half of the nodes that carry it.
	// When that many nodes that carry the same number see each other and none knows of a cluster, they found one. Zero:
	// only join. A node that belongs to a cluster ignores it; once founded, deploy with zero. A cluster counts as known for an hour
	// after the last of its nodes left, and for three days after it failed; a node that is restarted meanwhile does not know it.
	Bootstrap int
	// Shards is the number of shards when founding, 1 to 512, zero for 16. It is fixed then. A node that joins leaves it zero
	// or gives the cluster's number.
	Shards int
	// Replicas is how many nodes keep a copy of each shard when founding: 1, 3, 5 or 7, zero for 3. Like Shards it is fixed then, and
	// founders that disagree about one of the two found nothing. A node that joins leaves it zero or gives the cluster's number.
	Replicas int
	// Weight and MaxMoves are reserved for placement. They have no effect yet.
	Weight, MaxMoves int
	// History is how many changes of records each shard keeps for Watch and History, 100 to 10,000,000, zero for 100,000, and up to a tenth more; those
	// that one owner has seen grow older than 7 days, on its clock since boot, are forgotten too. The shard's owner applies its own value: give all nodes
	// the same.
	History int
	// Tags are gossiped with the node's record: at most 64, printable. Name, Zone, the address and all tags share 400 bytes, of
	// which each tag takes 8 on top of its key and value.
	Tags map[string]string
	// Secret and OldSecrets are reserved: gossip encryption and TLS are not supported yet, and Open refuses them.
	Secret     []byte
	OldSecrets [][]byte
	// TLS is reserved, see TLSConfig.
	TLS *TLSConfig
	// Insecure allows addresses that are not loopback without a secret: whoever reaches the port can change everything.
	Insecure bool
	// Ephemeral is reserved for nodes without a lasting disk. Open refuses it.
	Ephemeral bool
	// NoReplicas makes a node that keeps no copy of any shard and only calls. It cannot found.
	NoReplicas bool
	// SessionTTL is how long locks outlive a process that dies, 1 s to 1 h, zero for 5 s. It is recorded with each session.
	SessionTTL time.Duration
	// ElectionTimeout is after what silence of a leader the others elect another, 300 ms to 1 min, zero for 1 s.
	ElectionTimeout time.Duration
	// OwnerLease is how long an owner trusts its last confirmation, zero for 0.8 × ElectionTimeout, which it never exceeds.
	OwnerLease time.Duration
	// RequestTimeout bounds calls whose ctx has no deadline, zero for 10 s. Waiting for a lock that another holds is not bounded.
	RequestTimeout time.Duration
	// DrainTimeout is how long a hand-over waits for the callbacks of Own, zero for 10 s. After it the lease runs out instead.
	DrainTimeout time.Duration
	// ReplaceAfter and StallTimeout are reserved for healing and disk health. They have no effect yet.
	ReplaceAfter, StallTimeout time.Duration
	// Logger gets the logs of the node and of the libraries below it. Nil: warnings and errors go to stderr.
	Logger hclog.Logger
}

// withDefaults returns the config with its zero fields filled in.
func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.SessionTTL, defaultSessionTTL)
	def(&c.ElectionTimeout, defaultElectionTimeout)
	def(&c.OwnerLease, c.ElectionTimeout*8/10)
	def(&c.RequestTimeout, defaultRequestTimeout)
	def(&c.DrainTimeout, defaultDrainTimeout)
	def(&c.ReplaceAfter, defaultReplaceAfter)
	def(&c.StallTimeout, defaultStallTimeout)
	if c.History == 0 {
		c.History = defaultHistory
	}
	if c.Logger == nil {
		c.Logger = hclog.New(&hclog.LoggerOptions{Name: "oarlock", Level: hclog.Warn})
	}
	return c
}

// shards and replicas are what the node would found a cluster with.
func (c Config) shards() int   { return cmp.Or(c.Shards, defaultShards) }
func (c Config) replicas() int { return cmp.Or(c.Replicas, defaultReplicas) }

// problems collects what is wrong with a Config.
type problems struct{ errs []error }

func (p *problems) add(field string, value any, mend string) {
	p.errs = append(p.errs, fmt.Errorf("%w: Config.%s = %v: %s", ErrInvalid, field, value, mend))
}

func (p *problems) duration(field string, d, low, high time.Duration) {
	if d < low || d > high {
		p.add(field, d, fmt.Sprintf("give %v to %v, or zero for the default", low, high))
	}
}

// validate returns everything that is wrong with the config, whose defaults are filled in.
func (c Config) validate() error {
	var p problems
	c.validateNames(&p)
	c.validateAddresses(&p)
	c.validateCluster(&p)
	c.validateTags(&p)
	p.duration("SessionTTL", c.SessionTTL, minSessionTTL, maxSessionTTL)
	p.duration("ElectionTimeout", c.ElectionTimeout, minElectionTimeout, maxElectionTimeout)
	if c.OwnerLease < 100*time.Millisecond || c.OwnerLease > c.ElectionTimeout {
		p.add("OwnerLease", c.OwnerLease, "give 100ms to ElectionTimeout, or zero for 0.8 of it")
	}
	if c.SessionTTL < c.ElectionTimeout && c.SessionTTL >= minSessionTTL && c.ElectionTimeout <= maxElectionTimeout {
		p.add("SessionTTL", c.SessionTTL, fmt.Sprintf("give at least ElectionTimeout, %v, or no session outlives an election", c.ElectionTimeout))
	}
	p.duration("RequestTimeout", c.RequestTimeout, 10*time.Millisecond, time.Hour)
	p.duration("DrainTimeout", c.DrainTimeout, time.Millisecond, time.Hour)
	p.duration("ReplaceAfter", c.ReplaceAfter, minReplaceAfter, 30*24*time.Hour)
	p.duration("StallTimeout", c.StallTimeout, 100*time.Millisecond, time.Hour)
	return errors.Join(p.errs...)
}

func (c Config) validateNames(p *problems) {
	if c.Name == "" || len(c.Name) > maxName || !printable(c.Name) {
		p.add("Name", strconv.Quote(c.Name), fmt.Sprintf("give 1 to %d printable bytes", maxName))
	}
	if len(c.Zone) > maxName || !printable(c.Zone) {
		p.add("Zone", strconv.Quote(c.Zone), fmt.Sprintf("give at most %d printable bytes", maxName))
	}
	if c.Dir == "" {
		p.add("Dir", `""`, "give a directory on a local disk")
	}
	if len(c.Secret) > 0 {
		p.add("Secret", "(set)", "leave it empty: encryption is not supported yet; use loopback, or a trusted network with Insecure")
	}
	if len(c.OldSecrets) > 0 {
		p.add("OldSecrets", "(set)", "leave it empty: encryption is not supported yet")
	}
	if c.TLS != nil {
		p.add("TLS", "(set)", "leave it nil: TLS is not supported yet; use loopback, or a trusted network with Insecure")
	}
	if c.Ephemeral {
		p.add("Ephemeral", true, "leave it false: it is not supported yet; give the node a lasting directory")
	}
}

// validateTags refuses what would not fit into the node's record, now or when it carries the cluster's UUID.
func (c Config) validateTags(p *problems) {
	if len(c.Tags) > maxTags {
		p.add("Tags", fmt.Sprintf("(%d tags)", len(c.Tags)), fmt.Sprintf("give at most %d", maxTags))
		return
	}
	addr := max(len(c.Bind), len(c.Advertise)) + len(":65535")
	text := len(c.Name) + len(c.Zone) + addr
	for k, v := range c.Tags {
		if k == "" || !printable(k) || !printable(v) {
			p.add("Tags", strconv.Quote(k)+": "+strconv.Quote(v), "give a key that is not empty, and printable text")
		}
		text += tagCost + len(k) + len(v)
	}
	if len(c.Tags) > 0 && text > maxRecordText {
		p.add("Tags", fmt.Sprintf("(%d bytes with name, zone and address)", text), fmt.Sprintf("give at most %d in all", maxRecordText))
	}
}

func (c Config) validateAddresses(p *problems) {
	host, _, err := splitAddr(c.Bind)
	switch {
	case c.Bind == "":
		p.add("Bind", `""`, `give host:port, such as "127.0.0.1:7400"`)
	case err != nil:
		p.add("Bind", strconv.Quote(c.Bind), err.Error())
	case isWildcard(host) && c.Advertise == "":
		if _, err := onlyAddress(); err != nil {
			p.add("Advertise", `""`, fmt.Sprintf("give the address that peers reach this node at, since Bind is a wildcard and %v", err))
		}
	}
	if err == nil && c.Bind != "" && !isLoopback(host) && !c.Insecure {
		p.add("Bind", strconv.Quote(c.Bind), "bind to loopback, or set Insecure on a network that you trust: encryption is not supported yet")
	}
	if strings.Contains(host, "%") && c.Advertise == "" {
		p.add("Bind", strconv.Quote(c.Bind), "give Advertise too: an address with a zone means nothing to other machines")
	}
	if c.Advertise != "" {
		var err error
		host, _, err = splitAddr(c.Advertise)
		switch {
		case strings.Contains(host, "%"):
			p.add("Advertise", strconv.Quote(c.Advertise), "give an address without a zone: a zone means nothing to other machines")
		case err != nil:
			p.add("Advertise", strconv.Quote(c.Advertise), err.Error())
		case isWildcard(host):
			p.add("Advertise", strconv.Quote(c.Advertise), "give an address that peers can reach, not a wildcard")
		case isMany(host):
			p.add("Advertise", strconv.Quote(c.Advertise), "give the address of one node, not a multicast or broadcast address")
		case !isLoopback(host) && !c.Insecure:
			p.add("Advertise", strconv.Quote(c.Advertise), "advertise loopback, or set Insecure on a network that you trust")
		}
	}
	c.validateJoin(p, host)
}

// validateJoin checks the seeds. own is the host that peers are to reach this node at.
func (c Config) validateJoin(p *problems, own string) {
	for i, a := range c.Join {
		host, port, err := splitAddr(a)
		switch ip := net.ParseIP(host); {
		case err != nil || host == "" || port == 0:
			p.add(fmt.Sprintf("Join[%d]", i), strconv.Quote(a), "give host:port with a port above zero")
		case ip != nil && !ip.IsLoopback() && isLoopback(own):
			p.add(fmt.Sprintf("Join[%d]", i), strconv.Quote(a), "join loopback addresses only, or give a Bind or Advertise that other machines reach")
		}
	}
}

func (c Config) validateCluster(p *problems) {
	if c.Shards < 0 || c.Shards > maxShards {
		p.add("Shards", c.Shards, fmt.Sprintf("give 1 to %d, or zero for %d", maxShards, defaultShards))
	}
	switch c.replicas() {
	case 1, 3, 5, 7:
	default:
		p.add("Replicas", c.Replicas, "give 1, 3, 5 or 7: an even number tolerates no more failures than the odd one below it and loses a majority sooner")
	}
	switch {
	case c.Bootstrap < 0:
		p.add("Bootstrap", c.Bootstrap, "give 0 to only join, 1, or at least Replicas")
	case c.Bootstrap > 1 && c.Bootstrap < c.replicas():
		p.add("Bootstrap", c.Bootstrap, fmt.Sprintf("give 0, 1, or at least Replicas, %d", c.replicas()))
	case c.Bootstrap > maxBootstrap:
		p.add("Bootstrap", c.Bootstrap, fmt.Sprintf("give at most %d", maxBootstrap))
	case c.Bootstrap > 0 && c.NoReplicas:
		p.add("NoReplicas", true, "leave it false on nodes that found a cluster")
	}
	if c.History < minHistory || c.History > maxHistory {
		p.add("History", c.History, fmt.Sprintf("give %d to %d, or zero for %d", minHistory, maxHistory, defaultHistory))
	}
	for field, v := range map[string]int{"Weight": c.Weight, "MaxMoves": c.MaxMoves} {
		if v < 0 {
			p.add(field, v, "give no negative number")
		}
	}
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func splitAddr(a string) (host string, port int, err error) {
	host, ps, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, fmt.Errorf("give host:port")
	}
	n, err := strconv.ParseUint(ps, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("give a port of 0 to 65535")
	}
	return host, int(n), nil
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func isMany(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsMulticast() || ip.Equal(net.IPv4bcast))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// onlyAddress is the machine's only address that is not loopback.
func onlyAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("the machine's addresses cannot be listed: %w", err)
	}
	var found []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			found = append(found, n.IP.String())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the machine has %d addresses that are not loopback: %v", len(found), found)
	}
	return found[0], nil
}
