package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A brokenListener gives errors, then one connection, then nothing until it is closed.
type brokenListener struct {
	errors int
	tries  atomic.Int64
	good   net.Conn
	done   chan struct{}
}

func (l *brokenListener) Accept() (net.Conn, error) {
	switch n := int(l.tries.Add(1)); {
	case n <= l.errors:
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	case n == l.errors+1:
		return l.good, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *brokenListener) Close() error   { close(l.done); return nil }
func (l *brokenListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7400} }

// While no file descriptor is free the listener tries again, ever less often, and serves the first connection that it
// gets afterwards: it neither ends nor spins.
func TestTCP_Accept_GoesOnAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Config{Bind: "127.0.0.1:0"}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		l := &brokenListener{errors: 20, good: theirs, done: make(chan struct{})}
		x := newTCP(c, l)
		start := time.Now()
		x.wg.Go(x.acceptLoop) // stops when x is closed, which waits
		if _, err := ours.Write(appendHeader(nil, Gossip)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Accept(Gossip); err != nil {
			t.Fatal(err)
		}
		if got, want := x.Stats().AcceptErrors, uint64(20); got != want {
			t.Errorf("got %d errors counted, want %d", got, want)
		}
		// 5, 10, 20 … 640 ms, then a second each, twelve times.
		if got, want := time.Since(start), 1275*time.Millisecond+12*time.Second; got != want {
			t.Errorf("20 errors took %v, want %v", got, want)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// The deadline for the header is gone once the header has come: a connection that stays silent afterwards is left alone.
func TestTCP_Accept_HeaderDeadlineIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Config{Bind: "127.0.0.1:0"}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		x := newTCP(c, &brokenListener{good: theirs, done: make(chan struct{})})
		x.wg.Go(x.acceptLoop) // stops when x is closed, which waits
		if _, err := ours.Write(appendHeader(nil, RPC)); err != nil {
			t.Fatal(err)
		}
		got, err := x.Accept(RPC)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { ours.Write([]byte("x")) })
		if _, err := got.Read(make([]byte, 1)); err != nil {
			t.Errorf("an hour later: got %v", err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Close does not wait for the listener's rest.
func TestTCP_Close_DuringRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Config{Bind: "127.0.0.1:0"}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		l := &brokenListener{errors: 1 << 30, done: make(chan struct{})}
		x := newTCP(c, l)
		x.wg.Go(x.acceptLoop) // stops when x is closed, which waits
		time.Sleep(10 * time.Second)
		start := time.Now()
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("close took %v, want no wait", took)
		}
	})
}

// One line a minute for each host, with the number of those in between, and a bound on the hosts that are remembered.
func TestRefusals_Note(t *testing.T) {
	r := newRefusals()
	now := time.Now()
	steps := []struct {
		host     string
		after    time.Duration
		unlogged int
		log      bool
	}{
		{"a", 0, 0, true}, {"a", 0, 0, false}, {"b", 0, 0, true}, {"a", refusalEvery - 1, 0, false},
		{"a", 1, 2, true}, {"a", 1, 0, false}, {"a", refusalEvery, 1, true},
	}
	for i, s := range steps {
		now = now.Add(s.after)
		if unlogged, log := r.note(s.host, now); unlogged != s.unlogged || log != s.log {
			t.Errorf("step %d: got %d, %v, want %d, %v", i, unlogged, log, s.unlogged, s.log)
		}
	}
	for i := range 10 * refusalHosts {
		r.note(fmt.Sprint("host ", i), now)
	}
	if len(r.hosts) > refusalHosts {
		t.Errorf("%d hosts are remembered, want at most %d", len(r.hosts), refusalHosts)
	}
	if _, log := r.note("new", now.Add(refusalEvery)); !log {
		t.Error("a minute after a flood a new host is not logged")
	}
}

// Every fault of a Config is told at once, each with its field.
func TestConfig_WithDefaults_AllFaults(t *testing.T) {
	_, err := Listen(Config{Bind: "nowhere", Advertise: "host:http", HeaderTimeout: -1})
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Bind", "Advertise", "HeaderTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}

// A port that another process uses for UDP alone is an error when it was asked for, and its TCP half is given back.
func TestListen_UDPPortTaken(t *testing.T) {
	var err error
	for range 20 { // other programs may take the TCP half of a port meanwhile, but not of every one
		if err = listenWithUDPTaken(t); err == nil {
			return
		}
	}
	t.Fatalf("the TCP port is still taken, each time: %v", err)
}

// listenWithUDPTaken fails to listen at a port whose UDP half is taken, then listens at its TCP half alone.
func listenWithUDPTaken(t *testing.T) error {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	addr := u.LocalAddr().String()
	if _, err := Listen(Config{Bind: addr}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("got %v, want EADDRINUSE", err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
