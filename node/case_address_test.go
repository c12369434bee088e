package node_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/oarlock/oarlock/node"
)

// A wildcard bind is reached at Config.Advertise, with the port that port 0 became (cases 110 and 112).
func TestOpen_Wildcard(t *testing.T) {
	for _, bind := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		c := realConfig(t.TempDir())
		c.Bind, c.Advertise, c.Insecure, c.Bootstrap = bind, "127.0.0.1:0", true, 1
		founder := openReal(t, c)
		host, port, err := net.SplitHostPort(founder.Addr())
		if err != nil || host != "127.0.0.1" || port == "0" {
			t.Errorf("bind %q: reached at %q, want 127.0.0.1 and the port bound", bind, founder.Addr())
		}
		c = realConfig(t.TempDir())
		c.Join, c.Bootstrap = []string{founder.Addr()}, 0
		guest := openReal(t, c)
		if err := guest.Ready(t.Context()); err != nil {
			t.Fatalf("bind %q: ready: %v", bind, err)
		}
		if _, err := guest.ShardAt(1).Put(t.Context(), "k", nil, nil); err != nil {
			t.Errorf("bind %q: put through the wildcard: %v", bind, err)
		}
	}
}

// Whatever address a node is given, peers are told one that they can dial, or the start is refused with the setting's name; for a Bind
// that does not resolve see TestOpen_BadAddress (case 112).
func TestCase112_ConcreteAddress(t *testing.T) {
	for _, c := range []struct {
		bind, advertise string
		hosts           []string // that peers may be told
		refused         string   // part of the error otherwise
	}{
		{"127.0.0.1:0", "", []string{"127.0.0.1"}, ""},
		{"localhost:0", "", []string{"127.0.0.1", "::1"}, ""},
		{"127.0.0.1:0", "localhost:0", []string{"localhost"}, ""},
		{"127.0.0.1:0", "192.0.2.1:0", []string{"192.0.2.1"}, ""},
		{"127.0.0.1:0", "app.internal:7400", []string{"app.internal"}, ""},
		{"0.0.0.0:0", "127.0.0.1:0", []string{"127.0.0.1"}, ""},
		{"[::]:0", "[2001:db8::1]:0", []string{"2001:db8::1"}, ""},
		{"0.0.0.0:0", "", nil, "Config.Advertise"}, // or the machine's only address
		{"[::]:0", "", nil, "Config.Advertise"},
		{":0", "", nil, "Config.Advertise"},
		{"[fe80::1%lo]:0", "", nil, "Config.Bind"},
		{"127.0.0.1:0", "[fe80::1%lo]:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "0.0.0.0:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "[::]:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "[::ffff:0.0.0.0]:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", ":7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "224.0.0.1:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "[ff02::1]:7400", nil, "Config.Advertise"},
		{"127.0.0.1:0", "255.255.255.255:7400", nil, "Config.Advertise"},
	} {
		config := realConfig(t.TempDir())
		config.Bind, config.Advertise, config.Insecure, config.Bootstrap = c.bind, c.advertise, true, 0
		n, err := node.Open(t.Context(), config)
		if err != nil {
			if c.refused == "" || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("Bind %q, Advertise %q: got %v, want %v or an error with %q", c.bind, c.advertise, err, c.hosts, c.refused)
			}
			continue
		}
		host, port, err := net.SplitHostPort(n.Addr())
		closeReal(t, n)
		only := c.refused != "" && c.advertise == "" && net.ParseIP(host) != nil && !net.ParseIP(host).IsUnspecified() // of the machine
		if err != nil || port == "0" || port == "" || !only && !slices.Contains(c.hosts, host) {
			t.Errorf("Bind %q, Advertise %q: peers are told %q, want one of %v", c.bind, c.advertise, n.Addr(), c.hosts)
		}
	}
}
