package membership

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/membership/memberpb"
)

func full() claim {
	r := record(7, "[2001:db8::7]:7400")
	r.Zone, r.Tags = "zone-a", map[string]string{"a": "1", "b": "", "c": "ü"}
	r.Incarnation, r.Nonce, r.Cluster, r.Founder = 1<<60, 1<<63, uuid(99), 3
	r.MinVersion, r.MaxVersion, r.Runs, r.Room, r.NoReplicas = 2, 5, true, 9, true
	r.Shards, r.Replicas = 512, 7
	return claim{Record: r, revision: 1 << 40, leaving: true}
}

func cmpClaim() cmp.Option { return cmp.AllowUnexported(claim{}) }

func TestRecord_Encode(t *testing.T) {
	// What was encoded is decoded again, all fields.
	t.Run("RoundTrip", func(t *testing.T) {
		noRoom, noLimit := full(), full()
		noRoom.Room, noLimit.Room = 0, -1
		for _, want := range []claim{full(), noRoom, noLimit, {Record: record(1, addrOf(1)), revision: 1}} {
			b, err := encode(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(want.ID, b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpClaim()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})

	// Neither the revision nor the farewell changes the size, so a record that fits at Open fits until the end.
	t.Run("SizeIsConstant", func(t *testing.T) {
		c := full()
		c.revision, c.leaving = 1, false
		a, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		c.revision, c.leaving = 1<<63, true
		b, err := encode(c)
		if err != nil || len(a) != len(b) {
			t.Errorf("sizes %d and %d, error %v", len(a), len(b), err)
		}
	})
}

func TestRecord_Decode(t *testing.T) {
	// Each field of what a peer sends is checked (case 145).
	t.Run("Refused", func(t *testing.T) {
		for name, edit := range map[string]func(*memberpb.Record){
			"no version":      func(m *memberpb.Record) { m.Version = 0 },
			"other id":        func(m *memberpb.Record) { m.Id[0]++ },
			"short id":        func(m *memberpb.Record) { m.Id = m.Id[1:] },
			"no revision":     func(m *memberpb.Record) { m.Revision = 0 },
			"short cluster":   func(m *memberpb.Record) { m.Cluster = m.Cluster[1:] },
			"no port":         func(m *memberpb.Record) { m.Addr = "10.0.0.1" },
			"port 0":          func(m *memberpb.Record) { m.Addr = "10.0.0.1:0" },
			"port too high":   func(m *memberpb.Record) { m.Addr = "10.0.0.1:65536" },
			"no host":         func(m *memberpb.Record) { m.Addr = ":7400" },
			"slash in host":   func(m *memberpb.Record) { m.Addr = "a/b:7400" },
			"line in name":    func(m *memberpb.Record) { m.Name = "a\nb" },
			"long name":       func(m *memberpb.Record) { m.Name = strings.Repeat("n", maxText+1) },
			"empty tag":       func(m *memberpb.Record) { m.Tags[""] = "x" },
			"line in tag":     func(m *memberpb.Record) { m.Tags["k"] = "a\nb" },
			"huge founder":    func(m *memberpb.Record) { m.Founder = 1 << 31 },
			"versions turned": func(m *memberpb.Record) { m.MinVersion = m.MaxVersion + 1 },
		} {
			c := full()
			b, err := encode(c)
			if err != nil {
				t.Fatal(err)
			}
			var m memberpb.Record
			if err := proto.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			edit(&m)
			b, err = proto.Marshal(&m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decode(c.ID, b); !errors.Is(err, errMalformed) {
				t.Errorf("%s: got %v, want %v", name, err, errMalformed)
			}
		}
	})

	// A newer version is told apart from nonsense; fields that this version does not know are ignored.
	t.Run("Versions", func(t *testing.T) {
		c := full()
		b, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(c.ID, append(bytes.Clone(b), 0x08, 2)); !errors.Is(err, errVersion) { // the last value of a field counts
			t.Errorf("version 2: got %v, want %v", err, errVersion)
		}
		got, err := decode(c.ID, append(bytes.Clone(b), 0xf8, 0x06, 1)) // field 111
		if diff := cmp.Diff(c, got, cmpClaim()); err != nil || diff != "" {
			t.Errorf("unknown field: error %v (-want +got):\n%s", err, diff)
		}
	})
}

// No bytes make the decoder panic, and what it accepts can be encoded and decoded to the same (case 145).
func FuzzRecord_Decode(f *testing.F) {
	b, err := encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, MaxRecord+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(b)
		if err != nil {
			return
		}
		again, err := encode(c)
		if errors.Is(err, ErrTooLarge) {
			return // phase unset on the wire is two bytes shorter
		}
		if err != nil {
			t.Fatalf("accepted, but cannot be encoded: %v", err)
		}
		got, err := decode(c.ID, again)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tags) == 0 {
			c.Tags, got.Tags = nil, nil
		}
		if diff := cmp.Diff(c, got, cmpClaim()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
