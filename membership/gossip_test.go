package membership

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// inWire runs f in a bubble with a wire at address 1 and an endpoint at address 2.
func inWire(t *testing.T, f func(t *testing.T, w *wire, peer *memnet.Endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(memnet.Options{})
		own, err := n.Listen(addrOf(1))
		if err != nil {
			t.Fatal(err)
		}
		peer, err := n.Listen(addrOf(2))
		if err != nil {
			t.Fatal(err)
		}
		w := newWire(own, uuid(1), func(id string) (string, bool) { return addrOf(2), id == uuid(2) })
		f(t, w, peer)
		w.stop()
		_, _ = own.Close(), peer.Close()
	})
}

func TestWire_WriteToAddress(t *testing.T) {
	// Ids are resolved, real addresses are taken as they are, and nothing is ever an error for memberlist.
	inWire(t, func(t *testing.T, w *wire, peer *memnet.Endpoint) {
		for _, a := range []memberlist.Address{
			{Addr: "[fd00::1]:0", Name: uuid(2)},
			{Addr: addrOf(2)},
			{Addr: "[fd00::1]:0", Name: uuid(3)},
			{Addr: "[fd00::1]:0", Name: addrOf(2)}, // only a join may name an address
			{Addr: "nonsense", Name: uuid(4)},
		} {
			if _, err := w.WriteToAddress([]byte("x"), a); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
		if _, err := w.WriteToAddress(make([]byte, transport.MaxPacket+1), memberlist.Address{Addr: addrOf(2)}); err != nil {
			t.Errorf("too large: %v", err)
		}
		synctest.Wait()
		if n := len(peer.Packets()); n != 2 {
			t.Errorf("got %d packets, want 2", n)
		}
	})
}

// Stop ends streams that memberlist still reads from, and lets no new ones begin, but leaves the transport open.
func TestWire_Stop(t *testing.T) {
	inWire(t, func(t *testing.T, w *wire, peer *memnet.Endpoint) {
		s, err := w.DialAddressTimeout(memberlist.Address{Addr: "[::]:0", Name: uuid(2)}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() { // stops when the stream is closed; the receive below waits for it
			_, err := s.Read(make([]byte, 1))
			failed <- err
		}()
		synctest.Wait()
		w.stop()
		if err := <-failed; err == nil {
			t.Error("read from a stopped wire")
		}
		if _, err := w.DialTimeout(addrOf(2), time.Second); err == nil {
			t.Error("dialled through a stopped wire")
		}
		if _, err := w.t.Dial(t.Context(), transport.Gossip, addrOf(2)); err != nil {
			t.Errorf("the transport: %v", err)
		}
	})
}

func TestWire_Accept(t *testing.T) {
	// The number of streams at one time is bounded; closing one makes room (case 145).
	t.Run("StreamCap", func(t *testing.T) {
		inWire(t, func(t *testing.T, w *wire, peer *memnet.Endpoint) {
			var last net.Conn
			for range maxStreams {
				dialled(t, peer)
				last = <-w.StreamCh()
			}
			extra := dialled(t, peer)
			if _, err := extra.Read(make([]byte, 1)); err == nil {
				t.Error("a stream beyond the cap is open")
			}
			_, _ = last.Close(), last.Close() // counted once
			dialled(t, peer)
			<-w.StreamCh()
			extra = dialled(t, peer)
			if _, err := extra.Read(make([]byte, 1)); err == nil {
				t.Error("a second stream beyond the cap is open")
			}
		})
	})
	// A stream that never ends is cut off (case 145).
	t.Run("ByteCap", func(t *testing.T) {
		inWire(t, func(t *testing.T, w *wire, peer *memnet.Endpoint) {
			c := dialled(t, peer)
			go func() { // stops when the reader closes the stream
				for {
					if _, err := c.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			}()
			s := <-w.StreamCh()
			n, err := io.Copy(io.Discard, s)
			if n != maxStreamBytes || !errors.Is(err, errTooLong) {
				t.Errorf("got %d bytes and %v, want %d and %v", n, err, maxStreamBytes, errTooLong)
			}
			_ = s.Close()
		})
	})
}

func dialled(t *testing.T, from *memnet.Endpoint) net.Conn {
	t.Helper()
	c, err := from.Dial(t.Context(), transport.Gossip, addrOf(1))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Lines of the library get the level that fits here, a failed probe is noticed, and nothing is logged after the end.
func TestLogWriter_Write(t *testing.T) {
	var out bytes.Buffer
	var silent []string
	w := newLogWriter(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, DisableTime: true}), func(id string) { silent = append(silent, id) })
	for _, line := range []string{
		"[DEBUG] memberlist: a", "[INFO] memberlist: b", "[WARN] memberlist: c", "[ERR] memberlist: d",
		"[WARN] memberlist: ignoring alive message for 'x': y", "no level",
		"[INFO] memberlist: Suspect " + uuid(2) + " has failed, no acks received",
	} {
		if n, err := w.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
			t.Errorf("%q: %d, %v", line, n, err)
		}
	}
	w.closed.Store(true)
	_, _ = w.Write([]byte("[ERR] memberlist: late\n"))
	want := "[TRACE] memberlist: a\n[DEBUG] memberlist: b\n[WARN]  memberlist: c\n[WARN]  memberlist: d\n" +
		"[DEBUG] memberlist: ignoring alive message for 'x': y\n[DEBUG] no level\n"
	if got := out.String(); !strings.HasPrefix(got, want) || strings.Contains(got, "late") {
		t.Errorf("got %s, want it to begin with %s", got, want)
	}
	if len(silent) != 1 || silent[0] != uuid(2) {
		t.Errorf("silent: got %v, want %s", silent, uuid(2))
	}
}

// Garbage and bombs from the network are survived, and are no members (case 145).
func TestGossip_Garbage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sites := w.startAll(2)
		enemy, err := w.net.Listen("10.0.0.66:7400")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = enemy.Close() }()
		for kind := range 256 {
			junk := append([]byte{byte(kind)}, bytes.Repeat([]byte{0xff, 0x00, 0x91}, 100)...)
			_ = enemy.WriteTo(junk, addrOf(1))
			_ = enemy.WriteTo(junk[:1], addrOf(1))
			c, err := enemy.Dial(t.Context(), transport.Gossip, addrOf(1))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(junk)
			_ = c.Close()
		}
		time.Sleep(10 * time.Second)
		if !converged(sites) || len(sites[0].Members()) != 2 {
			t.Errorf("members: %v", states(sites[0]))
		}
	})
}

// Over real sockets: three nodes meet, change a record, lose one and see one leave.
func TestMembership_Sockets(t *testing.T) {
	var all []*Membership
	for i := 1; i <= 3; i++ {
		tcp, err := transport.Listen(transport.Config{Bind: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tcp.Close() }()
		c := Config{Self: record(i, tcp.Addr()), Transport: tcp, Secret: []byte("a secret for the sockets")}
		if i > 1 {
			c.Join = []string{all[0].Self().Addr}
		}
		m, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		all = append(all, m)
	}
	for _, m := range all {
		for i := 1; i <= 3; i++ {
			await(t, m, i, func(m Member) bool { return m.State == Alive })
		}
	}
	if err := all[2].Update(func(r *Record) { r.Zone = "z" }); err != nil {
		t.Fatal(err)
	}
	await(t, all[1], 3, func(m Member) bool { return m.Zone == "z" })
	if err := all[2].Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	await(t, all[0], 3, func(m Member) bool { return m.State == Failed })
	t.Log("noticed after", time.Since(start))
	if err := all[1].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, all[0], 2, func(m Member) bool { return m.State == Left })
}

// await waits until m sees member i as asked.
func await(t *testing.T, m *Membership, i int, ok func(Member) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for member := range m.Watch(ctx) {
		if member.ID == uuid(i) && ok(member) {
			return
		}
	}
	t.Fatalf("not seen within 30 s: member %d; members: %v", i, m.Members())
}
