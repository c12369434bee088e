package membership

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a record's fields. MaxRecord bounds them all together, so most records may use only a part of each.
const (
	MaxRecord  = 512 // bytes of an encoded record
	maxText    = 255 // bytes of a name, an address, a zone, a tag's key or value
	maxTags    = 64
	maxFounder = 1 << 10
	maxRoom    = 1 << 10
)

// State is how a member looks from this node. It is an opinion, not a fact: see the package's documentation.
type State uint8

// The states of a member.
const (
	Alive   State = iota + 1 // it answers, or others say so
	Suspect                  // it does not answer this node, and has not been given up yet
	Failed                   // it was given up; it may come back by itself
	Left                     // it said that it leaves, and is gone
)

// String names the state in lower case.
func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Suspect:
		return "suspect"
	case Failed:
		return "failed"
	case Left:
		return "left"
	default:
		return "state(" + strconv.Itoa(int(s)) + ")"
	}
}

// A Record is what a node says of itself. It is gossiped whole and takes at most MaxRecord bytes, so it is no place for
// data of applications beyond a few short tags. Empty fields cost nothing.
type Record struct {
	// ID is the node's UUID in canonical form: lower case, with hyphens.
	ID string
	// Name is what operators call the node. Names are not checked to be unique.
	Name string
	// Addr is the host:port at which peers reach it.
	Addr string
	// Zone is the failure domain it runs in, or empty.
	Zone string
	// Tags are free to use: at most 64, with non-empty keys.
	Tags map[string]string
	// Incarnation counts the node's starts. A higher one replaces every record of a lower one.
	Incarnation uint64
	// Nonce is drawn at each start. It tells two processes with one ID and incarnation apart.
	Nonce uint64
	// Cluster is the UUID of the cluster it belongs to, or empty. Members of other clusters are shown too.
	Cluster string
	// Founder is the Bootstrap number it carries while it waits to found a cluster, else 0.
	Founder int
	// Shards and Replicas are what it would found a cluster with; they mean nothing without Founder.
	Shards, Replicas uint32
	// MinVersion and MaxVersion are the cluster format versions it can speak.
	MinVersion, MaxVersion uint32
	// Runs says that some callback that wants to own shards runs on it.
	Runs bool
	// Room is for how many more shards they have room, if Runs is set; else 0. -1: there is no limit.
	Room int
	// NoReplicas says that it only calls and takes no replicas.
	NoReplicas bool
}

// A Member is a record and how its node looks from here.
type Member struct {
	Record
	State State
}

func (r Record) clone() Record {
	r.Tags = maps.Clone(r.Tags)
	return r
}

// check reports every field that is out of bounds.
func (r Record) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := parseUUID(r.ID); err != nil {
		bad("ID: %w", err)
	}
	if r.Cluster != "" {
		if _, err := parseUUID(r.Cluster); err != nil {
			bad("Cluster: %w", err)
		}
	}
	if err := checkAddr(r.Addr); err != nil {
		bad("Addr: %w", err)
	}
	for _, f := range []struct{ name, value string }{{"Name", r.Name}, {"Addr", r.Addr}, {"Zone", r.Zone}} {
		if err := checkText(f.value); err != nil {
			bad("%s: %w", f.name, err)
		}
	}
	if len(r.Tags) > maxTags {
		bad("Tags: %d of them, at most %d are allowed", len(r.Tags), maxTags)
	}
	for k, v := range r.Tags {
		if k == "" {
			bad("Tags: the key of %.20q is empty", v)
		}
		if err := errors.Join(checkText(k), checkText(v)); err != nil {
			bad("Tags: %.20q: %w", k, err)
		}
	}
	if r.Founder < 0 || r.Founder > maxFounder {
		bad("Founder: %d is not in 0..%d", r.Founder, maxFounder)
	}
	if r.Room < -1 || r.Room > maxRoom || r.Room != 0 && !r.Runs {
		bad("Room: %d is not in -1..%d, or Runs is not set", r.Room, maxRoom)
	}
	if r.MinVersion > r.MaxVersion {
		bad("MinVersion: %d is above MaxVersion %d", r.MinVersion, r.MaxVersion)
	}
	return errors.Join(errs...)
}

// checkText accepts what can be shown on one line.
func checkText(s string) error {
	switch {
	case len(s) > maxText:
		return fmt.Errorf("%d bytes, at most %d are allowed", len(s), maxText)
	case !utf8.ValidString(s):
		return fmt.Errorf("%.20q is not UTF-8", s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%.20q has control characters", s)
	}
	return nil
}

// checkAddr accepts host:port with both parts, and a numeric port above 0.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%.80q is not host:port: %w", addr, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || strings.Contains(host, "/") || err != nil || n == 0 {
		return fmt.Errorf("%.80q: host and a port of 1..65535 are required", addr)
	}
	return nil
}

// parseUUID reads the canonical form only, so that one node has one name.
func parseUUID(s string) ([16]byte, error) {
	var u [16]byte
	bad := fmt.Errorf("%.40q is not a UUID in canonical form", s)
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || s != strings.ToLower(s) {
		return u, bad
	}
	if n, err := hex.Decode(u[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil || n != len(u) {
		return u, bad
	}
	return u, nil
}

func formatUUID(u []byte) string {
	h := hex.EncodeToString(u)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
