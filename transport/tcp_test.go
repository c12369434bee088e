package transport_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/transporttest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func listen(t *testing.T, c transport.Config) *transport.TCP {
	t.Helper()
	if c.Bind == "" {
		c.Bind = "127.0.0.1:0"
	}
	x, err := transport.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func conformance(t *testing.T, c transport.Config) {
	transporttest.Run(t, func(t *testing.T) (a, b transport.Transport) {
		return listen(t, c), listen(t, c)
	}, func(t *testing.T, addr string) (transport.Transport, error) {
		at := c
		at.Bind = addr
		x, err := transport.Listen(at)
		return x, err
	})
}

// The transport on sockets has every property of the suite.
func TestTCP_Conformance(t *testing.T) {
	conformance(t, transport.Config{Bind: "127.0.0.1:0"})
}

// The same holds when Wrap puts TLS around each connection.
func TestTCP_ConformanceWithTLS(t *testing.T) {
	client, server := tlsConfigs(t)
	conformance(t, transport.Config{Bind: "127.0.0.1:0", Wrap: func(c net.Conn, isServer bool) (net.Conn, error) {
		if isServer {
			return tls.Server(c, server), nil
		}
		return tls.Client(c, client), nil
	}})
}

// tlsConfigs are a client's and a server's configuration that trust one fresh certificate.
func tlsConfigs(t *testing.T) (client, server *tls.Config) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"node"}}
	der, err := x509.CreateCertificate(nil, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, ServerName: "node"},
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// A log that tests can read while it is written.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// wantClosed expects the peer to close c, and to have sent nothing.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if netErr, ok := err.(net.Error); ok {
		timeout = netErr
	}
	if n > 0 || err == nil || timeout != nil && timeout.Timeout() {
		t.Fatalf("got %d bytes, %v, want the connection closed", n, err)
	}
}

// Garbage, a wrong version and an unknown protocol are closed, with one log line for the whole series, and do not
// disturb the next good connection (cases 145, 148).
func TestTCP_AcceptGarbage(t *testing.T) {
	var log logBuffer
	x := listen(t, transport.Config{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	garbage := []string{"GET / HTTP/1.1\r\n\r\n", "oarL\x02\x01", "oarL\x01\x09", "\x16\x03\x01\x00\xa5\x01\x00", strings.Repeat("\x00", 4096)}
	for _, in := range garbage {
		c, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, c)
		c.Close()
	}
	good, err := x.Dial(context.Background(), transport.RPC, x.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	c, err := x.Accept(transport.RPC)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got, want := x.Stats().Refused, uint64(len(garbage)); got != want {
		t.Errorf("got %d refused connections, want %d", got, want)
	}
	if got := log.count("refused a connection"); got != 1 {
		t.Errorf("got %d log lines, want 1", got)
	}
}

// A client that connects and says nothing, or half a header, is closed after HeaderTimeout.
func TestTCP_AcceptSlowHeader(t *testing.T) {
	x := listen(t, transport.Config{HeaderTimeout: 50 * time.Millisecond})
	for _, in := range []string{"", "oar"} {
		c, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, c)
	}
	if got := x.Stats().Refused; got != 2 {
		t.Errorf("got %d refused connections, want 2", got)
	}
}

// Silent clients are bounded in number: those beyond the bound are closed at once, long before their timeout.
func TestTCP_AcceptPendingIsBounded(t *testing.T) {
	x := listen(t, transport.Config{HeaderTimeout: time.Hour})
	ended := make(chan struct{}, 300)
	var wg sync.WaitGroup
	for range 300 {
		c, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wg.Go(func() { // stops when the listener closes the connection
			c.Read(make([]byte, 1))
			ended <- struct{}{}
		})
	}
	for range 300 - 256 {
		<-ended
	}
	if got, want := x.Stats().Refused, uint64(300-256); got != want {
		t.Errorf("got %d refused connections, want %d", got, want)
	}
	if err := x.Close(); err != nil { // ends the others
		t.Fatal(err)
	}
	wg.Wait()
}

// Addr tells the real port in place of port 0, and Advertise's host and port where they are given.
func TestTCP_Addr(t *testing.T) {
	plain := listen(t, transport.Config{})
	_, port, err := net.SplitHostPort(plain.Addr())
	if err != nil || port == "0" {
		t.Fatalf("got %s, want a real port", plain.Addr())
	}
	named := listen(t, transport.Config{Bind: "127.0.0.1:0", Advertise: "localhost:0"})
	if host, port, _ := net.SplitHostPort(named.Addr()); host != "localhost" || port == "0" {
		t.Errorf("got %s, want localhost and a real port", named.Addr())
	}
	fixed := listen(t, transport.Config{Bind: "127.0.0.1:0", Advertise: "example.org:7400"})
	if got := fixed.Addr(); got != "example.org:7400" {
		t.Errorf("got %s, want what was advertised", got)
	}
}

// A handshake that the peer never answers is bounded by the dial's context and ended by Close.
func TestTCP_Dial_HandshakeHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // its connections are never accepted
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	entered := make(chan struct{}, 1)
	x := listen(t, transport.Config{Wrap: func(c net.Conn, _ bool) (net.Conn, error) {
		entered <- struct{}{}
		_, err := c.Read(make([]byte, 1))
		return nil, err
	}})
	hang := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() { // stops when ctx or x ends, and the test waits for it
			_, err := x.Dial(ctx, transport.RPC, silent.Addr().String())
			done <- err
		}()
		<-entered
		return done
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := hang(ctx)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	second := hang(context.Background())
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}

// A peer that fails the handshake, or speaks plain to a secured port, is refused, and counted (case 148).
func TestTCP_Accept_PlainToSecured(t *testing.T) {
	client, server := tlsConfigs(t)
	secured := listen(t, transport.Config{Wrap: func(c net.Conn, isServer bool) (net.Conn, error) {
		if isServer {
			return tls.Server(c, server), nil
		}
		return tls.Client(c, client), nil
	}})
	plain := listen(t, transport.Config{})
	c, err := plain.Dial(context.Background(), transport.Raft, secured.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.Copy(io.Discard, c); err != nil { // it gets at most an alert
		t.Log(err)
	}
	if got := secured.Stats().Refused; got != 1 {
		t.Errorf("got %d refused connections, want 1", got)
	}
}
