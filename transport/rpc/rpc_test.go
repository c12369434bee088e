package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
	"github.com/oarlock/oarlock/transport/rpc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The addresses of the tests' network.
const (
	clientAddr = "10.0.0.1:7400"
	serverAddr = "10.0.0.2:7400"
)

// Methods of the test handler.
const (
	methodEcho  = 1 // answers with the body
	methodWait  = 2 // waits for its context, answers nothing
	methodFail  = 3 // a RemoteError with code 7
	methodPlain = 4 // an error of another type
	methodSleep = 5 // sleeps for the nanoseconds in the body, whatever its context says
)

// A world is a client and a server on a network in memory.
type world struct {
	net     *memnet.Network
	server  *rpc.Server
	client  *rpc.Client
	from    sync.Map     // the remote addresses that called, one for each connection
	ran     atomic.Int64 // handlers that have begun
	dials   atomic.Int64 // that the client has begun
	ended   chan error   // the context's cause of each methodWait that ended
	servers transport.Transport
	clients transport.Transport
}

// inBubble runs f with a fresh world in virtual time. Nothing may be left of it afterwards.
func inBubble(t *testing.T, o *rpc.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{net: memnet.New(memnet.Options{}), ended: make(chan error, 10_000)}
		w.clients = &counter{Transport: w.listen(t, clientAddr), dials: &w.dials}
		w.serve(t, o)
		w.client = rpc.NewClient(w.clients, o)
		f(t, w)
		err := errors.Join(w.client.Close(), w.server.Close(), w.clients.Close(), w.servers.Close())
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// A counter counts dials.
type counter struct {
	transport.Transport
	dials *atomic.Int64
}

func (c *counter) Dial(ctx context.Context, p transport.Proto, addr string) (net.Conn, error) {
	c.dials.Add(1)
	return c.Transport.Dial(ctx, p, addr)
}

func (w *world) listen(t *testing.T, addr string) transport.Transport {
	t.Helper()
	e, err := w.net.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *world) serve(t *testing.T, o *rpc.Options) {
	t.Helper()
	w.servers = w.listen(t, serverAddr)
	w.server = rpc.Serve(w.servers, w.handle, o)
}

func (w *world) handle(ctx context.Context, r rpc.Request) ([]byte, error) {
	w.ran.Add(1)
	w.from.Store(r.From, true)
	switch r.Method {
	case methodEcho:
		return bytes.Clone(r.Body), nil
	case methodWait:
		<-ctx.Done()
		w.ended <- ctx.Err()
		return nil, ctx.Err()
	case methodFail:
		return nil, fmt.Errorf("wrapped: %w", &rpc.RemoteError{Code: 7, Text: "no"})
	case methodSleep:
		time.Sleep(time.Duration(binary.LittleEndian.Uint64(r.Body)))
		return []byte("slept"), nil
	}
	return nil, errors.New("plain")
}

// callers counts the connections on which calls have come.
func (w *world) callers() (n int) {
	for range w.from.Range {
		n++
	}
	return n
}

func sleepBody(d time.Duration) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(d)) }

// timed runs one call under a timeout and says how long it took.
func (w *world) timed(d time.Duration, method uint16, body []byte) ([]byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := time.Now()
	b, err := w.client.Call(ctx, serverAddr, method, body)
	return b, time.Since(start), err
}

// Bodies of all sizes come back, errors keep code and text.
func TestClient_Call_Answers(t *testing.T) {
	inBubble(t, &rpc.Options{MaxBody: 1 << 20}, func(t *testing.T, w *world) {
		for _, n := range []int{0, 1, 127, 4 << 10, 300 << 10, 1 << 20} {
			want := bytes.Repeat([]byte{byte(n), 7}, n/2)
			got, _, err := w.timed(time.Second, methodEcho, want)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: got %d bytes, %v", n, len(got), err)
			}
		}
		for method, want := range map[uint16]*rpc.RemoteError{
			methodFail:  {Code: 7, Text: "no"},
			methodPlain: {Code: 0, Text: "plain"},
		} {
			_, _, err := w.timed(time.Second, method, nil)
			got, ok := errors.AsType[*rpc.RemoteError](err)
			if !ok || cmp.Diff(want, got) != "" {
				t.Errorf("method %d: got %v, want %v", method, err, want)
			}
		}
	})
}

// A body above the bound is refused before it is sent, an answer above it is an error and leaves the connection good.
func TestClient_Call_MaxBody(t *testing.T) {
	o := &rpc.Options{MaxBody: 100}
	inBubble(t, o, func(t *testing.T, w *world) {
		_, _, err := w.timed(time.Second, methodEcho, make([]byte, 101))
		if !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, transport.ErrFrameTooLarge) || w.ran.Load() != 0 {
			t.Errorf("101 bytes, at most 100: got %v, %d handlers ran", err, w.ran.Load())
		}
		if _, _, err := w.timed(time.Second, methodEcho, make([]byte, 100)); err != nil {
			t.Errorf("100 bytes, at most 100: got %v", err)
		}
		big := rpc.Serve(w.listen(t, "10.0.0.3:1"), func(context.Context, rpc.Request) ([]byte, error) {
			return make([]byte, 101), nil
		}, o)
		defer big.Close()
		_, err = w.client.Call(context.Background(), "10.0.0.3:1", 1, nil)
		if remote, ok := errors.AsType[*rpc.RemoteError](err); !ok || !strings.Contains(remote.Text, "101 bytes") {
			t.Errorf("an answer of 101 bytes, at most 100: got %v", err)
		}
	})
}

// A thousand callers at once, some slow, each get their own answer, over one connection.
func TestClient_Call_Concurrent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { // stops when its calls have answers
				for j := range 5 {
					if i%10 == 0 {
						if _, took, err := w.timed(time.Minute, methodSleep, sleepBody(time.Second)); err != nil || took < time.Second {
							t.Errorf("sleep: took %v, %v", took, err)
						}
						continue
					}
					want := fmt.Sprint(i, " ", j)
					if got, _, err := w.timed(time.Minute, methodEcho, []byte(want)); err != nil || string(got) != want {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
				}
			})
		}
		wg.Wait()
		if got := w.ran.Load(); got != 5000 {
			t.Errorf("%d handlers ran for 5000 calls", got)
		}
	})
}

// Nobody at the address: the call was certainly not sent, and says so at once.
func TestClient_Call_Refused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		start := time.Now()
		_, err := w.client.Call(context.Background(), "10.0.0.9:1", methodEcho, nil)
		if !errors.Is(err, rpc.ErrNotSent) || time.Since(start) != 0 {
			t.Errorf("got %v after %v, want ErrNotSent at once", err, time.Since(start))
		}
	})
}

// A failed dial is not repeated for DialRest, then it is: a server that comes up is found without a long breaker.
func TestClient_Call_DialRest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		if err := errors.Join(w.server.Close(), w.servers.Close()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.timed(time.Second, methodEcho, nil); !errors.Is(err, rpc.ErrNotSent) {
			t.Fatalf("got %v, want ErrNotSent", err)
		}
		w.serve(t, nil)
		if _, took, err := w.timed(time.Second, methodEcho, nil); !errors.Is(err, rpc.ErrNotSent) || took != 0 {
			t.Errorf("within the rest: got %v after %v, want ErrNotSent at once", err, took)
		}
		time.Sleep(50 * time.Millisecond)
		if _, _, err := w.timed(time.Second, methodEcho, nil); err != nil {
			t.Errorf("after the rest: got %v", err)
		}
	})
}

// Dials into the void are shared and bounded by DialTimeout; each waiting caller is bounded by its own context, and calls
// to others are not delayed (case 137).
func TestClient_Call_DialHangs(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		other := rpc.Serve(w.listen(t, "10.0.0.3:1"), w.handle, nil)
		defer other.Close()
		w.net.Drop(clientAddr, serverAddr)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { // stops when its call ends
				limit := time.Duration(i+1) * 100 * time.Millisecond
				_, took, err := w.timed(limit, methodEcho, nil)
				if !errors.Is(err, rpc.ErrNotSent) || took != min(limit, 2*time.Second) {
					t.Errorf("limit %v: got %v after %v", limit, err, took)
				}
			})
		}
		start := time.Now()
		if _, err := w.client.Call(context.Background(), "10.0.0.3:1", methodEcho, nil); err != nil || time.Since(start) != 0 {
			t.Errorf("a call to another: got %v after %v", err, time.Since(start))
		}
		wg.Wait()
		if got := w.dials.Load(); got != 2 {
			t.Errorf("got %d dials, want one to each address", got)
		}
	})
}

// Close ends calls in flight, calls that wait for a dial, and later ones, and returns without delay (case 151).
func TestClient_Close_EndsCalls(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.net.Drop(clientAddr, "10.0.0.4:1")
		var wg sync.WaitGroup
		wg.Go(func() { // stops when the client closes
			_, err := w.client.Call(context.Background(), serverAddr, methodWait, nil)
			if !errors.Is(err, rpc.ErrInterrupted) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("in flight: got %v", err)
			}
		})
		wg.Go(func() { // stops when the client closes
			_, err := w.client.Call(context.Background(), "10.0.0.4:1", methodEcho, nil)
			if !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("dialling: got %v", err)
			}
		})
		synctest.Wait()
		start := time.Now()
		for range 2 {
			if err := w.client.Close(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("close took %v", took)
		}
		_, err := w.client.Call(context.Background(), serverAddr, methodEcho, nil)
		if !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("later: got %v", err)
		}
	})
}
