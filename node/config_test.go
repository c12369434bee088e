package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// validConfig has nothing wrong with it.
func validConfig() Config {
	return Config{Name: "n", Dir: "/data", Bind: "127.0.0.1:7400"}
}

// badConfig is one thing that is wrong with a Config, and parts of the error that says so.
type badConfig struct {
	field       string
	change      func(*Config)
	value, mend string
}

// badConfigs are all the kinds of wrong values, at least one for each field that can be wrong.
func badConfigs() []badConfig {
	long := strings.Repeat("x", 65)
	return []badConfig{
		{"Name", func(c *Config) { c.Name = "" }, `""`, "1 to 64 printable bytes"},
		{"Name", func(c *Config) { c.Name = long }, `"` + long + `"`, "1 to 64 printable bytes"},
		{"Name", func(c *Config) { c.Name = "a\nb" }, `"a\nb"`, "printable"},
		{"Name", func(c *Config) { c.Name = "a\xffb" }, `"a\xffb"`, "printable"},
		{"Zone", func(c *Config) { c.Zone = long }, `"` + long + `"`, "at most 64 printable bytes"},
		{"Zone", func(c *Config) { c.Zone = "\x00" }, `"\x00"`, "printable"},
		{"Dir", func(c *Config) { c.Dir = "" }, `""`, "give a directory"},
		{"Bind", func(c *Config) { c.Bind = "" }, `""`, "give host:port"},
		{"Bind", func(c *Config) { c.Bind = "127.0.0.1" }, `"127.0.0.1"`, "give host:port"},
		{"Bind", func(c *Config) { c.Bind = "127.0.0.1:http" }, `"127.0.0.1:http"`, "port of 0 to 65535"},
		{"Bind", func(c *Config) { c.Bind = "127.0.0.1:65536" }, `"127.0.0.1:65536"`, "port of 0 to 65535"},
		{"Bind", func(c *Config) { c.Bind = "127.0.0.1:-1" }, `"127.0.0.1:-1"`, "port of 0 to 65535"},
		{"Bind", func(c *Config) { c.Bind = "192.0.2.1:7400" }, `"192.0.2.1:7400"`, "Insecure"},
		{"Bind", func(c *Config) { c.Bind, c.Advertise = ":7400", "127.0.0.1:7400" }, `":7400"`, "Insecure"},
		{"Advertise", func(c *Config) { c.Advertise = "127.0.0.1" }, `"127.0.0.1"`, "give host:port"},
		{"Advertise", func(c *Config) { c.Advertise = "0.0.0.0:7400" }, `"0.0.0.0:7400"`, "not a wildcard"},
		{"Advertise", func(c *Config) { c.Advertise = "[::]:7400" }, `"[::]:7400"`, "not a wildcard"},
		{"Advertise", func(c *Config) { c.Advertise = ":7400" }, `":7400"`, "not a wildcard"},
		{"Advertise", func(c *Config) { c.Advertise = "192.0.2.1:7400" }, `"192.0.2.1:7400"`, "Insecure"},
		{"Advertise", func(c *Config) { c.Advertise, c.Insecure = "[fe80::1%eth0]:7400", true }, `"[fe80::1%eth0]:7400"`, "without a zone"},
		{"Bind", func(c *Config) { c.Bind, c.Insecure = "[fe80::1%eth0]:7400", true }, `"[fe80::1%eth0]:7400"`, "Advertise"},
		{"Join[1]", func(c *Config) { c.Join = []string{"127.0.0.1:1", "127.0.0.1:0"} }, `"127.0.0.1:0"`, "port above zero"},
		{"Join[0]", func(c *Config) { c.Join = []string{":7400"} }, `":7400"`, "give host:port"},
		{"Join[0]", func(c *Config) { c.Join = []string{"app.internal"} }, `"app.internal"`, "give host:port"},
		{"Join[0]", func(c *Config) { c.Join = []string{"192.0.2.1:7400"} }, `"192.0.2.1:7400"`, "loopback"},
		{"Bootstrap", func(c *Config) { c.Bootstrap = -1 }, "-1", "give 0 to only join"},
		{"Bootstrap", func(c *Config) { c.Bootstrap = 2 }, "2", "at least Replicas, 3"},
		{"Bootstrap", func(c *Config) { c.Bootstrap = 3; c.Replicas = 5 }, "3", "at least Replicas, 5"},
		{"Bootstrap", func(c *Config) { c.Bootstrap = 1025 }, "1025", "at most 1024"},
		{"Shards", func(c *Config) { c.Shards = -1 }, "-1", "1 to 512"},
		{"Shards", func(c *Config) { c.Shards = 513 }, "513", "1 to 512"},
		{"Replicas", func(c *Config) { c.Replicas = 2 }, "2", "1, 3, 5 or 7"},
		{"Replicas", func(c *Config) { c.Replicas = 4 }, "4", "even number"},
		{"Replicas", func(c *Config) { c.Replicas = 9 }, "9", "1, 3, 5 or 7"},
		{"Replicas", func(c *Config) { c.Replicas = -3 }, "-3", "1, 3, 5 or 7"},
		{"Weight", func(c *Config) { c.Weight = -1 }, "-1", "no negative number"},
		{"MaxMoves", func(c *Config) { c.MaxMoves = -1 }, "-1", "no negative number"},
		{"History", func(c *Config) { c.History = -1 }, "-1", "give 100 to 10000000"},
		{"Tags", func(c *Config) { c.Tags = map[string]string{"": "v"} }, `""`, "key"},
		{"Tags", func(c *Config) { c.Tags = map[string]string{"k": "a\nb"} }, `"a\nb"`, "printable"},
		{"Tags", func(c *Config) { c.Tags = map[string]string{"k": strings.Repeat("v", 500)} }, "bytes", "at most 400"},
		{"Tags", func(c *Config) { c.Tags = manyTags(65) }, "65", "at most 64"},
		{"Secret", func(c *Config) { c.Secret = []byte("0123456789abcdef") }, "(set)", "leave it empty"},
		{"OldSecrets", func(c *Config) { c.OldSecrets = [][]byte{nil} }, "(set)", "leave it empty"},
		{"TLS", func(c *Config) { c.TLS = &TLSConfig{Server: &tls.Config{}} }, "(set)", "leave it nil"},
		{"Ephemeral", func(c *Config) { c.Ephemeral = true }, "true", "leave it false"},
		{"NoReplicas", func(c *Config) { c.NoReplicas, c.Bootstrap = true, 3 }, "true", "leave it false"},
		{"SessionTTL", func(c *Config) { c.SessionTTL = time.Nanosecond }, "1ns", "1s to 1h"},
		{"SessionTTL", func(c *Config) { c.SessionTTL = -1 }, "-1ns", "1s to 1h"},
		{"SessionTTL", func(c *Config) { c.SessionTTL = 1<<63 - 1 }, "2562047h", "1s to 1h"},
		{"SessionTTL", func(c *Config) { c.SessionTTL, c.ElectionTimeout = 2*time.Second, 3*time.Second }, "2s", "at least ElectionTimeout, 3s"},
		{"ElectionTimeout", func(c *Config) { c.ElectionTimeout = 299 * time.Millisecond }, "299ms", "300ms to 1m"},
		{"ElectionTimeout", func(c *Config) { c.ElectionTimeout = time.Hour }, "1h", "300ms to 1m"},
		{"OwnerLease", func(c *Config) { c.OwnerLease = 2 * time.Second }, "2s", "ElectionTimeout"},
		{"OwnerLease", func(c *Config) { c.OwnerLease = time.Millisecond }, "1ms", "100ms"},
		{"RequestTimeout", func(c *Config) { c.RequestTimeout = -1 }, "-1ns", "or zero for the default"},
		{"DrainTimeout", func(c *Config) { c.DrainTimeout = 2 * time.Hour }, "2h", "or zero for the default"},
		{"ReplaceAfter", func(c *Config) { c.ReplaceAfter = time.Second }, "1s", "10s to"},
		{"StallTimeout", func(c *Config) { c.StallTimeout = 1 }, "1ns", "100ms to"},
	}
}

func manyTags(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = ""
	}
	return m
}

// leaves are the single errors in a tree of joined and wrapped ones that are an ErrInvalid.
func leaves(err error) []string {
	if many, ok := err.(interface{ Unwrap() []error }); ok && !slices.Contains(many.Unwrap(), ErrInvalid) {
		var all []string
		for _, e := range many.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

// Each wrong value gives one error, an ErrInvalid with the field, the value and what to do (cases 112 and 159).
func TestConfig_Validate(t *testing.T) {
	for _, b := range badConfigs() {
		c := validConfig()
		b.change(&c)
		err := c.withDefaults().validate()
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s = %s: got %v, want ErrInvalid", b.field, b.value, err)
			continue
		}
		all := leaves(err)
		if len(all) != 1 {
			t.Errorf("%s = %s: got %d errors, want 1: %q", b.field, b.value, len(all), all)
		}
		for _, part := range []string{"Config." + b.field + " = ", b.value, b.mend} {
			if !strings.Contains(all[0], part) {
				t.Errorf("%s = %s: got %q, want something with %q", b.field, b.value, all[0], part)
			}
		}
	}
}

// What is at the bounds is accepted.
func TestConfig_ValidateBounds(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"zero values":          func(*Config) {},
		"smallest":             func(c *Config) { c.SessionTTL, c.ElectionTimeout = time.Second, 300*time.Millisecond },
		"largest":              func(c *Config) { c.SessionTTL, c.ElectionTimeout = time.Hour, time.Minute },
		"most shards":          func(c *Config) { c.Shards, c.Replicas, c.Bootstrap = 512, 7, 7 },
		"one founder":          func(c *Config) { c.Bootstrap = 1 },
		"wildcard":             func(c *Config) { c.Bind, c.Advertise, c.Insecure = ":0", "192.0.2.1:0", true },
		"names in Join":        func(c *Config) { c.Join = []string{"app.internal:7400", "[::1]:7400", "localhost:7400"} },
		"remote nodes":         func(c *Config) { c.Bind, c.Insecure, c.Join = "192.0.2.1:0", true, []string{"192.0.2.2:7400"} },
		"IPv6":                 func(c *Config) { c.Bind = "[::1]:0" },
		"lease as long as can": func(c *Config) { c.OwnerLease = time.Second },
		"tags":                 func(c *Config) { c.Tags = manyTags(30) },
		"long name":            func(c *Config) { c.Name = strings.Repeat("ä", 32) },
	} {
		c := validConfig()
		change(&c)
		if err := c.withDefaults().validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All problems of a config are told at once.
func TestConfig_ValidateAll(t *testing.T) {
	c := Config{Shards: -1, Replicas: 2, SessionTTL: -1, Secret: []byte("x"), Join: []string{"a", "b"}, Weight: -1}
	err := c.withDefaults().validate()
	want := []string{"Name", "Dir", "Secret", "Bind", "Join[0]", "Join[1]", "Shards", "Replicas", "Weight", "SessionTTL"}
	if all := leaves(err); len(all) != len(want) {
		t.Errorf("got %d errors, want %d: %q", len(all), len(want), all)
	}
	for _, f := range want {
		if !strings.Contains(fmt.Sprint(err), "Config."+f+" = ") {
			t.Errorf("got %v, want something about %s", err, f)
		}
	}
}

// Every field of Config is tried with a wrong value, or cannot have one.
func TestConfig_ValidateEveryField(t *testing.T) {
	tried := map[string]bool{"Insecure": true, "Logger": true}
	for _, b := range badConfigs() {
		name, _, _ := strings.Cut(b.field, "[")
		tried[name] = true
	}
	for f := range reflect.TypeFor[Config]().Fields() {
		if !tried[f.Name] {
			t.Errorf("no wrong value of Config.%s is tried", f.Name)
		}
	}
}

// Open refuses a wrong config before it touches anything.
func TestOpen_InvalidConfig(t *testing.T) {
	n, err := Open(context.Background(), Config{Dir: t.TempDir() + "/none"})
	if n != nil || !errors.Is(err, ErrInvalid) {
		t.Errorf("open: got %v, %v, want nil, ErrInvalid", n, err)
	}
}

// However long the names are that are accepted, the node's record fits, also when it carries the cluster's UUID.
func TestConfig_ValidateRecord(t *testing.T) {
	c := validConfig()
	c.Name, c.Zone, c.Bind = strings.Repeat("n", 64), strings.Repeat("z", 64), "127.127.127.127:65535"
	c.Bootstrap, c.Replicas = 1024, 7
	room := maxRecordText - len(c.Name) - len(c.Zone) - len(c.Bind)
	for i := 0; room > tagCost+2; i++ { // as many tags as fit, which cost the most
		c.Tags = manyTags(i)
		room -= tagCost + len(strconv.Itoa(i))
	}
	if err := c.withDefaults().validate(); err != nil {
		t.Fatalf("a record at its bounds: %v", err)
	}
	m, err := membership.Open(membership.Config{
		Self: membership.Record{
			ID: uuid.NewString(), Name: c.Name, Addr: c.Bind, Zone: c.Zone, Tags: c.Tags, Incarnation: 1 << 62, Nonce: 1 << 63,
			Cluster: uuid.NewString(), Founder: c.Bootstrap, MinVersion: 1 << 31, MaxVersion: 1 << 31, Runs: true, Room: maxShards, NoReplicas: true,
		},
		Transport: listenMem(t, c.Bind),
	})
	if err != nil {
		t.Fatalf("gossip such a record: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func listenMem(t *testing.T, addr string) transport.Transport {
	t.Helper()
	e, err := memnet.New(memnet.Options{}).Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}
