package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// A lab is two endpoints and one connection between them, in a bubble.
type lab struct {
	*memnet.Network
	a, b         *memnet.Endpoint
	addrA, addrB string
	ca, cb       net.Conn
}

func inLab(t *testing.T, o memnet.Options, f func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{Network: memnet.New(o)}
		l.a, l.b = pair(t, l.Network)
		l.addrA, l.addrB = l.a.Addr(), l.b.Addr()
		l.ca, l.cb = l.connect(t)
		f(t, l)
		l.a.Close()
		l.b.Close()
	})
}

func (l *lab) connect(t *testing.T) (dialled, accepted net.Conn) {
	t.Helper()
	dialled, err := l.a.Dial(context.Background(), transport.Raft, l.addrB)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = l.b.Accept(transport.Raft)
	if err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("write %q: %v", s, err)
	}
}

// expect reads exactly s within an hour, and returns how long it took.
func expect(t *testing.T, c net.Conn, s string) time.Duration {
	t.Helper()
	start := time.Now()
	if err := c.SetReadDeadline(start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(s))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != s {
		t.Fatalf("got %q, %v, want %q", got[:n], err, s)
	}
	return time.Since(start)
}

// silent expects that nothing comes for an hour, not even an error.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want silence", n, err)
	}
}

// received counts the packets that wait at e.
func received(e *memnet.Endpoint) int {
	synctest.Wait()
	n := 0
	for {
		select {
		case <-e.Packets():
			n++
		default:
			return n
		}
	}
}

// A partition breaks connections at once on both sides, also those who wait, refuses dials and swallows packets; after
// Heal dials work and broken connections stay broken.
func TestNetwork_Partition(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		var wg sync.WaitGroup
		for _, c := range []net.Conn{l.ca, l.cb} {
			wg.Go(func() { // stops at the reset
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a waiting read: got %v, want a reset", err)
				}
			})
		}
		synctest.Wait()
		l.Partition(l.addrB, l.addrA)
		wg.Wait()
		if _, err := l.ca.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: got %v, want a reset", err)
		}
		for _, e := range [][2]*memnet.Endpoint{{l.a, l.b}, {l.b, l.a}} {
			if _, err := e[0].Dial(context.Background(), transport.RPC, e[1].Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial: got %v, want refused", err)
			}
			if err := e[0].WriteTo([]byte("x"), e[1].Addr()); err != nil || received(e[1]) != 0 {
				t.Errorf("a packet passed, or %v", err)
			}
		}
		l.Heal(l.addrA, l.addrB)
		if _, err := l.cb.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("healed: got %v, want the reset to last", err)
		}
		again, accepted := l.connect(t)
		send(t, again, "again")
		expect(t, accepted, "again")
	})
}

// A one-way cut swallows that direction without an error and leaves the other; once healed everything arrives, in
// order, as if TCP had sent it again. What had arrived before the cut can be read during it.
func TestNetwork_Cut(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		send(t, l.ca, "before ")
		l.Cut(l.addrA, l.addrB)
		send(t, l.ca, "during ")
		send(t, l.ca, "it")
		expect(t, l.cb, "before ")
		silent(t, l.cb)
		send(t, l.cb, "other way")
		expect(t, l.ca, "other way")
		l.a.WriteTo([]byte("x"), l.addrB)
		l.b.WriteTo([]byte("x"), l.addrA)
		if there, back := received(l.b), received(l.a); there != 0 || back != 1 {
			t.Errorf("got %d packets along the cut, %d against it, want 0 and 1", there, back)
		}
		l.Heal(l.addrA, l.addrB)
		expect(t, l.cb, "during it")
		send(t, l.ca, " and after")
		expect(t, l.cb, " and after")
	})
}

// A reader that waits at the cut gets the bytes at the instant of the healing, not later.
func TestNetwork_Heal_WakesReader(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		l.Drop(l.addrA, l.addrB)
		send(t, l.ca, "x")
		time.AfterFunc(40*time.Second, l.HealAll)
		if took := expect(t, l.cb, "x"); took != 40*time.Second {
			t.Errorf("it took %v, want 40s", took)
		}
	})
}

// Writes into a cut succeed until the buffers are full, then block, until a deadline or the healing; not a byte is lost.
func TestNetwork_Cut_FillsBuffer(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		l.Cut(l.addrA, l.addrB)
		data := make([]byte, 1<<20)
		for i := range data {
			data[i] = byte(i * 7 >> 3)
		}
		l.ca.SetWriteDeadline(time.Now().Add(time.Minute))
		n, err := l.ca.Write(data)
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != 256<<10 {
			t.Fatalf("got %d bytes written, %v, want 256 KiB and a timeout", n, err)
		}
		l.ca.SetWriteDeadline(time.Time{})
		var wg sync.WaitGroup
		wg.Go(func() { // stops when all is written
			if _, err := l.ca.Write(data[n:]); err != nil {
				t.Error(err)
			}
			l.ca.Close()
		})
		synctest.Wait()
		l.HealAll()
		got, err := io.ReadAll(l.cb)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, %v, want all %d", len(got), err, len(data))
		}
		wg.Wait()
	})
}

// The news of a close does not pass a cut: the peer hears nothing until it is healed, then the rest and the end.
func TestNetwork_Cut_HidesClose(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		l.Isolate(l.addrA)
		send(t, l.ca, "last")
		l.a.Close()
		silent(t, l.cb)
		if _, err := l.cb.Write([]byte("into the void")); err != nil {
			t.Errorf("a write to a peer that is cut off: got %v", err)
		}
		l.Rejoin(l.addrA)
		expect(t, l.cb, "last")
		if _, err := l.cb.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %v, want io.EOF", err)
		}
		if _, err := l.cb.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("got %v, want a broken pipe", err)
		}
	})
}

// A dial into a silent path hangs until its context ends or the path is healed, whichever direction is cut.
func TestEndpoint_Dial_IntoCut(t *testing.T) {
	faults := map[string]func(l *lab){
		"there":    func(l *lab) { l.Cut(l.addrA, l.addrB) },
		"back":     func(l *lab) { l.Cut(l.addrB, l.addrA) },
		"both":     func(l *lab) { l.Drop(l.addrA, l.addrB) },
		"isolated": func(l *lab) { l.Isolate(l.addrB) },
		"held":     func(l *lab) { l.Hold(l.addrB) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
				fault(l)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				start := time.Now()
				_, err := l.a.Dial(ctx, transport.RPC, l.addrB)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
					t.Errorf("got %v after %v, want the deadline", err, time.Since(start))
				}
				start = time.Now()
				time.AfterFunc(time.Second, func() { l.HealAll(); l.Resume(l.addrB) })
				c, err := l.a.Dial(context.Background(), transport.RPC, l.addrB)
				if err != nil || time.Since(start) != time.Second {
					t.Fatalf("got %v after %v, want a connection after 1s", err, time.Since(start))
				}
				c.Close()
			})
		})
	}
}

// Hold keeps everything back, streams, packets and closes, and Resume delivers it in order, without loss.
func TestNetwork_Hold(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		l.Hold(l.addrB)
		l.HealAll() // does not wake a paused node
		for i := range 10 {
			if err := l.a.WriteTo([]byte{byte(i)}, l.addrB); err != nil {
				t.Fatal(err)
			}
		}
		send(t, l.ca, "in")
		send(t, l.cb, "out")
		silent(t, l.ca)
		silent(t, l.cb)
		l.Resume(l.addrB)
		expect(t, l.ca, "out")
		expect(t, l.cb, "in")
		for i := range 10 {
			if p := <-l.b.Packets(); p.Data[0] != byte(i) {
				t.Errorf("packet %d came in place of %d", p.Data[0], i)
			}
		}
	})
}
