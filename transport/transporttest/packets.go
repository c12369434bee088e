package transporttest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// receive waits for one packet.
func receive(t *testing.T, x transport.Transport) transport.Packet {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case p, ok := <-x.Packets():
		if !ok {
			t.Fatal("the packets ended")
		}
		return p
	case <-timeout.C:
		t.Fatal("no packet came")
	}
	return transport.Packet{}
}

// Packets arrive with their content and the sender's address, to which an answer can be sent; the sender may use its
// buffer again at once, and each packet is the receiver's own.
func packets(t *testing.T, a, b transport.Transport) {
	buf := []byte("ping 1")
	if err := a.WriteTo(buf, b.Addr()); err != nil {
		t.Fatal(err)
	}
	copy(buf, "XXXXXX")
	first := receive(t, b)
	if string(first.Data) != "ping 1" || first.From != a.Addr() {
		t.Fatalf("got %q from %s, want %q from %s", first.Data, first.From, "ping 1", a.Addr())
	}
	if age := time.Since(first.At); age < 0 || age > patience {
		t.Errorf("the packet's time is %v ago", age)
	}
	big := pattern(32<<10, 3)
	if err := b.WriteTo(big, first.From); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, a); !bytes.Equal(got.Data, big) {
		t.Fatalf("got %d bytes, want %d unchanged", len(got.Data), len(big))
	}
	if err := a.WriteTo([]byte("ping 2"), b.Addr()); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, b); string(got.Data) != "ping 2" || string(first.Data) != "ping 1" {
		t.Fatalf("got %q after %q", got.Data, first.Data)
	}
}

// A packet above the bound is an error of the sender.
func packetTooLarge(t *testing.T, a, b transport.Transport) {
	if err := a.WriteTo(make([]byte, transport.MaxPacket+1), b.Addr()); err == nil {
		t.Error("got no error")
	}
}

// Packets that nobody reads are dropped; streams and the sender go on.
func slowPacketReader(t *testing.T, a, b transport.Transport) {
	for range 3000 {
		if err := a.WriteTo(make([]byte, 64), b.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	dialled, accepted := connect(t, transport.RPC, a, b)
	say(t, dialled, accepted, "alive")
}

// Close ends every wait on the transport with net.ErrClosed, closes its connections and its packets.
func closeUnblocksEverything(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.RPC, a, b)
	var wg sync.WaitGroup
	for _, p := range transport.Protos() {
		wg.Go(func() { // stops when b is closed
			_, err := b.Accept(p)
			wantClosed(t, "accept", err)
		})
	}
	wg.Go(func() { // stops when b is closed
		for range b.Packets() {
			t.Error("got a packet that nobody sent")
		}
	})
	wg.Go(func() { // stops when b is closed
		_, err := accepted.Read(make([]byte, 1))
		wantClosed(t, "read", err)
	})
	say(t, accepted, dialled, "up")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	wantEnd(t, dialled)
	_, err := b.Accept(transport.RPC)
	wantClosed(t, "accept", err)
	_, err = b.Dial(context.Background(), transport.RPC, a.Addr())
	wantClosed(t, "dial", err)
	wantClosed(t, "write of a packet", b.WriteTo([]byte("x"), a.Addr()))
}

// Close may be called often and by many at once; connections of both directions go with it.
func closeIsIdempotent(t *testing.T, a, b transport.Transport) {
	out, _ := connect(t, transport.RPC, a, b)
	_, in := connect(t, transport.RPC, b, a)
	both(
		func() { a.Close() },
		func() { a.Close() },
	)
	if err := a.Close(); err != nil {
		t.Errorf("a later close: got %v", err)
	}
	for _, c := range []net.Conn{out, in} {
		_, err := c.Read(make([]byte, 1))
		wantClosed(t, "read", err)
	}
}

// The address can be listened at again the moment Close has returned, also with open connections (case 151).
func addressFree(t *testing.T, a, b transport.Transport, relisten func(*testing.T, string) (transport.Transport, error)) {
	for range 20 {
		dialled, accepted := connect(t, transport.RPC, a, b)
		say(t, dialled, accepted, "x")
		addr := b.Addr()
		if _, err := relisten(t, addr); err == nil {
			t.Fatalf("listening twice at %s: got no error", addr)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := relisten(t, addr)
		if err != nil {
			t.Fatalf("listen again at %s: %v", addr, err)
		}
		defer again.Close()
		b = again
	}
}
