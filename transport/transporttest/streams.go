package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// flood is more than the buffers of any connection hold, those of the system's sockets included.
const flood = 32 << 20

// Connections reach whoever accepts their protocol, and nobody else, whatever the order.
func protosAreSeparate(t *testing.T, a, b transport.Transport) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dialled := make(map[transport.Proto]net.Conn)
	for _, p := range transport.Protos() {
		c, err := a.Dial(ctx, p, b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		dialled[p] = c
	}
	protos := transport.Protos()
	for i := len(protos) - 1; i >= 0; i-- {
		c, err := b.Accept(protos[i])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		say(t, dialled[protos[i]], c, protos[i].String())
		say(t, c, dialled[protos[i]], protos[i].String())
	}
	if _, err := b.Accept(transport.Proto(200)); err == nil {
		t.Error("accept of an unknown protocol: got no error")
	}
}

// The header goes out with the dial, so a protocol in which the accepting side speaks first works.
func serverSpeaksFirst(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.Gossip, a, b)
	say(t, accepted, dialled, "hello")
}

// Nobody at the address is an error, at once.
func dialRefused(t *testing.T, a, b transport.Transport) {
	addr := b.Addr()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c, err := a.Dial(ctx, transport.RPC, addr); err == nil {
		c.Close()
		t.Fatal("dial to nobody: got a connection")
	}
	if ctx.Err() != nil {
		t.Fatal("dial to nobody took until the deadline")
	}
}

// A dial whose context is over fails with the context's error.
func dialEndsWithContext(t *testing.T, a, b transport.Transport) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.Dial(ctx, transport.RPC, b.Addr()); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

// A connection of a protocol that does not exist is closed by the other side.
func unknownProtoIsClosed(t *testing.T, a, b transport.Transport) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := a.Dial(ctx, transport.Proto(77), b.Addr())
	if err != nil {
		return // refused at once is as good
	}
	defer c.Close()
	wantEnd(t, c)
}

// wantEnd expects the peer to have closed c, and nothing to be read before.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want the connection closed by the peer", n, err)
	}
}

// Connections that nobody accepts are kept up to the backlog; one more is closed.
func backlogIsBounded(t *testing.T, a, b transport.Transport) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended := make(chan int, transport.Backlog+1)
	var wg sync.WaitGroup
	conns := make([]net.Conn, 0, transport.Backlog+1)
	for i := range transport.Backlog + 1 {
		c, err := a.Dial(ctx, transport.Snapshot, b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		wg.Go(func() { // stops when the peer, or the test, closes c
			c.Read(make([]byte, 1))
			ended <- i
		})
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("no connection beyond the backlog was closed")
	}
	if n := len(ended); n > 0 {
		t.Errorf("%d connections were closed, want 1", n+1)
	}
	for _, c := range conns {
		c.Close()
	}
	wg.Wait()
}

// A megabyte both ways at once arrive whole and in order.
func bigTransfersBothWays(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.Raft, a, b)
	const size = 1 << 20
	send := func(c net.Conn, seed byte) {
		if _, err := c.Write(pattern(size, seed)); err != nil {
			t.Errorf("write: %v", err)
		}
	}
	receive := func(c net.Conn, seed byte) {
		got := make([]byte, size)
		if _, err := io.ReadFull(c, got); err != nil {
			t.Errorf("read: %v", err)
		} else if !bytes.Equal(got, pattern(size, seed)) {
			t.Errorf("%d bytes arrived changed", size)
		}
	}
	both(
		func() { both(func() { send(dialled, 1) }, func() { receive(dialled, 2) }) },
		func() { both(func() { send(accepted, 2) }, func() { receive(accepted, 1) }) },
	)
}

// pattern is n bytes in which every shift and swap shows.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// Many dials at once all get through, each to its own conversation.
func manyConnectionsAtOnce(t *testing.T, a, b transport.Transport) {
	const count = transport.Backlog / 2
	var echo, wg sync.WaitGroup
	for range count {
		echo.Go(func() { // stops when the connection it accepts is closed
			c, err := b.Accept(transport.RPC)
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			defer c.Close()
			io.Copy(c, c)
		})
	}
	for i := range count {
		wg.Go(func() { // stops when the echo came back
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			c, err := a.Dial(ctx, transport.RPC, b.Addr())
			if err != nil {
				t.Errorf("dial: %v", err)
				return
			}
			defer c.Close()
			want := fmt.Sprintf("conversation %d", i)
			got := make([]byte, len(want))
			if _, err := io.WriteString(c, want); err != nil {
				t.Error(err)
			} else if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	wg.Wait()
	echo.Wait()
}

// A transport reaches itself at its own address.
func dialItself(t *testing.T, a, _ transport.Transport) {
	dialled, accepted := connect(t, transport.RPC, a, a)
	say(t, dialled, accepted, "there")
	say(t, accepted, dialled, "back")
}

// A wait for connections that is given up leaves the transport as it was: the next connection reaches the next wait.
func acceptEndsWithContext(t *testing.T, a, b transport.Transport) {
	ctx, cancel := context.WithCancel(context.Background())
	both(
		func() {
			if _, err := transport.AcceptContext(ctx, b, transport.RPC); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		},
		cancel,
	)
	dialled, accepted := connect(t, transport.RPC, a, b)
	say(t, dialled, accepted, "hello")
}

// A read deadline ends a read, and the connection is usable after a new one.
func readDeadline(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.RPC, a, b)
	for _, at := range []time.Time{time.Now().Add(30 * time.Millisecond), time.Now().Add(-time.Second)} {
		if err := accepted.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		_, err := accepted.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("got %v, want a timeout that is os.ErrDeadlineExceeded", err)
		}
	}
	if err := accepted.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	say(t, dialled, accepted, "still good")
}

// A write to a peer that does not read blocks once the buffers are full, and its deadline ends it.
func writeDeadline(t *testing.T, a, b transport.Transport) {
	dialled, _ := connect(t, transport.RPC, a, b)
	if err := dialled.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := dialled.Write(make([]byte, flood))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes written, %v, want os.ErrDeadlineExceeded", n, err)
	}
}

// A peer's close comes as io.EOF behind what it wrote, and a later write fails.
func peerCloseGivesEOF(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.RPC, a, b)
	if _, err := io.WriteString(dialled, "last words"); err != nil {
		t.Fatal(err)
	}
	if err := dialled.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(accepted); err != nil || string(got) != "last words" {
		t.Fatalf("got %q, %v, want all of the last words and io.EOF", got, err)
	}
	var err error
	for err == nil { // the first write may only provoke the reset; the deadline ends the loop otherwise
		_, err = accepted.Write(make([]byte, 4<<10))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("writes to a closed peer went on until the deadline")
	}
}

// Closing a connection ends its own blocked read and write.
func localCloseUnblocks(t *testing.T, a, b transport.Transport) {
	dialled, _ := connect(t, transport.RPC, a, b)
	var wg sync.WaitGroup
	started := make(chan struct{}, 2)
	wg.Go(func() { // stops when the connection is closed
		started <- struct{}{}
		_, err := dialled.Read(make([]byte, 1))
		wantClosed(t, "read", err)
	})
	wg.Go(func() { // stops when the connection is closed
		started <- struct{}{}
		_, err := dialled.Write(make([]byte, flood))
		wantClosed(t, "write", err)
	})
	<-started
	<-started
	if err := dialled.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// A frame that announces more than the reader's bound is refused before it is read.
func oversizeFrameIsRefused(t *testing.T, a, b transport.Transport) {
	dialled, accepted := connect(t, transport.RPC, a, b)
	both(
		func() { transport.WriteFrame(dialled, make([]byte, 1<<20), 2<<20) },
		func() {
			if _, err := transport.ReadFrame(accepted, nil, 1<<10); !errors.Is(err, transport.ErrFrameTooLarge) {
				t.Errorf("got %v, want ErrFrameTooLarge", err)
			}
			accepted.Close()
		},
	)
}
