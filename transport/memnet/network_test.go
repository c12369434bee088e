package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// Delay holds for each direction; jitter reorders packets but never a stream.
func TestNetwork_Delay(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		l.Delay(l.addrA, l.addrB, 30*time.Millisecond, 0)
		send(t, l.ca, "x")
		if took := expect(t, l.cb, "x"); took != 30*time.Millisecond {
			t.Errorf("there: got %v, want 30ms", took)
		}
		send(t, l.cb, "y")
		if took := expect(t, l.ca, "y"); took != 30*time.Millisecond {
			t.Errorf("back: got %v, want 30ms", took)
		}
		start := time.Now()
		l.connect(t)
		if took := time.Since(start); took != 60*time.Millisecond {
			t.Errorf("a dial took %v, want a round trip of 60ms", took)
		}
		l.Delay(l.addrA, l.addrB, 0, time.Second)
		var want bytes.Buffer
		for i := range 200 {
			fmt.Fprint(&want, i, " ")
			send(t, l.ca, fmt.Sprint(i, " "))
			l.a.WriteTo([]byte{byte(i)}, l.addrB)
		}
		expect(t, l.cb, want.String())
		time.Sleep(time.Second)
		ordered, last, n := true, -1, 0
		for range 200 {
			p := <-l.b.Packets()
			ordered = ordered && int(p.Data[0]) > last
			last = int(p.Data[0])
			n++
		}
		if ordered {
			t.Errorf("%d packets with a jitter of 1s came in order", n)
		}
		l.Delay(l.addrA, l.addrB, time.Minute, 0)
		send(t, l.ca, "slow ")
		l.Heal(l.addrA, l.addrB)
		send(t, l.ca, "then fast")
		if took := expect(t, l.cb, "slow then fast"); took != time.Minute {
			t.Errorf("a fast write behind a slow one: got %v, want a minute", took)
		}
		send(t, l.ca, "now")
		if took := expect(t, l.cb, "now"); took != 0 {
			t.Errorf("healed: got %v, want no delay", took)
		}
	})
}

// Loss takes about its share of packets, and makes streams late but never wrong.
func TestNetwork_Loss(t *testing.T) {
	inLab(t, memnet.Options{Seed: 1}, func(t *testing.T, l *lab) {
		l.Loss(l.addrA, l.addrB, 0.3)
		for range 1000 {
			l.a.WriteTo([]byte("x"), l.addrB)
		}
		if n := received(l.b); n < 630 || n > 770 {
			t.Errorf("%d of 1000 packets arrived, want about 700", n)
		}
		start := time.Now()
		for i := range 100 {
			s := fmt.Sprint(i)
			send(t, l.ca, s)
			expect(t, l.cb, s)
		}
		if took := time.Since(start); took < 2*time.Second {
			t.Errorf("100 writes with 30%% loss took %v: no retransmission was felt", took)
		}
	})
}

// Faults of one pair leave all others alone.
func TestNetwork_FaultsAreLocal(t *testing.T) {
	inLab(t, memnet.Options{}, func(t *testing.T, l *lab) {
		c, err := l.Listen("10.0.0.3:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l.Partition(l.addrA, c.Addr())
		l.Drop(l.addrB, c.Addr())
		l.Loss(l.addrB, c.Addr(), 1)
		send(t, l.ca, "x")
		if took := expect(t, l.cb, "x"); took != 0 {
			t.Errorf("it took %v", took)
		}
		l.Isolate(c.Addr())
		self, err := c.Dial(context.Background(), transport.RPC, c.Addr())
		if err != nil {
			t.Fatalf("an isolated node cannot reach itself: %v", err)
		}
		self.Close()
	})
}

// Addresses: port 0 picks free ones, one address cannot be had twice, nonsense is refused.
func TestNetwork_Listen(t *testing.T) {
	n := memnet.New(memnet.Options{})
	seen := map[string]bool{}
	for range 100 {
		e, err := n.Listen("10.0.0.1:0")
		if err != nil || seen[e.Addr()] {
			t.Fatalf("got %v, %v", e, err)
		}
		defer e.Close()
		seen[e.Addr()] = true
	}
	for addr := range seen {
		if _, err := n.Listen(addr); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s twice: got %v, want in use", addr, err)
		}
		break
	}
	for _, addr := range []string{"", "host", "host:name", "host:70000"} {
		if _, err := n.Listen(addr); err == nil {
			t.Errorf("listen at %q: got no error", addr)
		}
	}
}

// Two writers at once do not mix their bytes, also when each has to wait for room.
func TestConn_Write_Concurrent(t *testing.T) {
	inLab(t, memnet.Options{Delay: time.Millisecond}, func(t *testing.T, l *lab) {
		const size = 300 << 10 // more than the buffer
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { // stops when all is written
				if _, err := l.ca.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			})
		}
		got := make([]byte, 4*size)
		if _, err := io.ReadFull(l.cb, got); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for i := range 4 {
			part := got[i*size : (i+1)*size]
			if !bytes.Equal(part, bytes.Repeat(part[:1], size)) {
				t.Errorf("part %d is a mix", i)
			}
		}
	})
}
