package rpc_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/transport/rpc"
)

// The handler's context ends when the caller gives up, at the caller's deadline (also when the peer cannot be told),
// when the connection breaks and when either side closes, at that instant; the caller learns that the outcome is unknown.
func TestHandler_ContextEnds(t *testing.T) {
	const limit = 2 * time.Second // less than it takes to find a connection dead
	causes := map[string]struct {
		end  func(w *world, cancel func())
		took time.Duration
		ctx  error
		want []error
	}{
		"cancelled": {func(_ *world, cancel func()) { cancel() }, 0, context.Canceled,
			[]error{rpc.ErrInterrupted, context.Canceled}},
		"deadline": {func(*world, func()) {}, limit, nil, // at one instant the time is up and the caller gives up
			[]error{rpc.ErrInterrupted, context.DeadlineExceeded}},
		"deadline in a cut": {func(w *world, _ func()) { w.net.Drop(clientAddr, serverAddr) }, limit, context.DeadlineExceeded,
			[]error{rpc.ErrInterrupted, context.DeadlineExceeded}},
		"reset": {func(w *world, _ func()) { w.net.Partition(clientAddr, serverAddr) }, 0, context.Canceled,
			[]error{rpc.ErrInterrupted, syscall.ECONNRESET}},
		"server closes": {func(w *world, _ func()) { w.server.Close() }, 0, context.Canceled, []error{rpc.ErrInterrupted}},
		"client closes": {func(w *world, _ func()) { w.client.Close() }, 0, context.Canceled, []error{rpc.ErrInterrupted}},
	}
	for name, c := range causes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, w *world) {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				got := make(chan error, 1)
				go func() { // stops when the call ends, which the test waits for
					_, err := w.client.Call(ctx, serverAddr, methodWait, nil)
					got <- err
				}()
				synctest.Wait()
				start := time.Now()
				c.end(w, cancel)
				if err := <-w.ended; c.ctx != nil && !errors.Is(err, c.ctx) {
					t.Errorf("the handler's context ended with %v, want %v", err, c.ctx)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("the handler's context ended after %v, want %v", took, c.took)
				}
				err := <-got
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("the caller got %v, want %v", err, want)
					}
				}
			})
		})
	}
}

// A silent cut, in either direction or both, bounds callers by their contexts, is noticed within twice Dead, and the
// connection is replaced after the path is healed, without anybody's help.
func TestClient_Call_SilentCut(t *testing.T) {
	cuts := map[string]func(w *world){
		"both":      func(w *world) { w.net.Drop(clientAddr, serverAddr) },
		"to server": func(w *world) { w.net.Cut(clientAddr, serverAddr) },
		"to client": func(w *world) { w.net.Cut(serverAddr, clientAddr) },
		"isolated":  func(w *world) { w.net.Isolate(serverAddr) },
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, w *world) {
				if _, _, err := w.timed(time.Second, methodEcho, nil); err != nil {
					t.Fatal(err)
				}
				cut(w)
				_, took, err := w.timed(500*time.Millisecond, methodEcho, nil)
				if !errors.Is(err, rpc.ErrInterrupted) || !errors.Is(err, context.DeadlineExceeded) || took != 500*time.Millisecond {
					t.Errorf("got %v after %v, want ErrInterrupted after 500ms", err, took)
				}
				_, took, err = w.timed(time.Hour, methodWait, nil)
				if !errors.Is(err, rpc.ErrInterrupted) || took > 7*time.Second {
					t.Errorf("got %v after %v, want ErrInterrupted within 7s", err, took)
				}
				w.net.HealAll()
				time.Sleep(50 * time.Millisecond)
				if _, took, err := w.timed(time.Second, methodEcho, nil); err != nil || took > 100*time.Millisecond {
					t.Errorf("healed: got %v after %v", err, took)
				}
			})
		})
	}
}

// While a connection is silent, calls that its writer has not taken are known not to be sent, so they may be repeated;
// those taken are not.
func TestClient_Call_NotSentWhileWriterIsStuck(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		if _, _, err := w.timed(time.Second, methodEcho, nil); err != nil {
			t.Fatal(err)
		}
		w.net.Cut(clientAddr, serverAddr)
		var wg sync.WaitGroup
		wg.Go(func() { // stops at its deadline
			// Larger than what the path's buffers swallow: it keeps the writer busy.
			if _, _, err := w.timed(time.Second, methodEcho, make([]byte, 1<<20)); !errors.Is(err, rpc.ErrInterrupted) {
				t.Errorf("the first: got %v, want ErrInterrupted", err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() { // stops at its deadline
				if _, _, err := w.timed(time.Second, methodEcho, []byte("x")); !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("queued: got %v, want ErrNotSent", err)
				}
			})
			wg.Go(func() { // stops when the connection is found dead
				if _, took, err := w.timed(time.Minute, methodEcho, []byte("y")); !errors.Is(err, rpc.ErrNotSent) || took > 7*time.Second {
					t.Errorf("queued until the end: got %v after %v, want ErrNotSent", err, took)
				}
			})
		}
		wg.Wait()
		before := w.ran.Load()
		w.net.HealAll()
		time.Sleep(10 * time.Second)
		if got := w.ran.Load() - before; got > 1 {
			t.Errorf("%d handlers ran after the path was healed, want at most the interrupted one", got)
		}
	})
}

// A request that was taken back before it left never runs, although its connection goes on.
func TestClient_Call_TakenBackNeverRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		if _, _, err := w.timed(time.Second, methodEcho, nil); err != nil {
			t.Fatal(err)
		}
		w.net.Cut(clientAddr, serverAddr)
		var wg sync.WaitGroup
		wg.Go(func() { // stops when the path is healed
			if _, _, err := w.timed(time.Minute, methodEcho, make([]byte, 1<<20)); err != nil {
				t.Errorf("the first: got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { // stops when the path is healed
			if got, _, err := w.timed(time.Minute, methodEcho, []byte("patient")); err != nil || string(got) != "patient" {
				t.Errorf("the patient one: got %q, %v", got, err)
			}
		})
		if _, _, err := w.timed(100*time.Millisecond, methodEcho, []byte("impatient")); !errors.Is(err, rpc.ErrNotSent) {
			t.Errorf("the impatient one: got %v, want ErrNotSent", err)
		}
		w.net.HealAll()
		wg.Wait()
		synctest.Wait()
		if got, want := w.ran.Load(), int64(3); got != want {
			t.Errorf("%d handlers ran, want %d", got, want)
		}
	})
}

// A short pause of the peer, shorter than Dead, breaks nothing: the call is answered afterwards.
func TestClient_Call_ShortPause(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.net.Hold(serverAddr)
		time.AfterFunc(1500*time.Millisecond, func() { w.net.Resume(serverAddr) })
		if _, took, err := w.timed(time.Minute, methodEcho, nil); err != nil || took != 1500*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

// Handlers that take long neither break the connection nor hold up others; beyond MaxInFlight callers wait, however
// long, and then go on over the same connection.
func TestServer_MaxInFlight_BackPressure(t *testing.T) {
	inBubble(t, &rpc.Options{MaxInFlight: 2}, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { // stops when its handler has slept
				if _, _, err := w.timed(time.Hour, methodSleep, sleepBody(20*time.Second)); err != nil {
					t.Errorf("got %v", err)
				}
			})
		}
		start := time.Now()
		wg.Wait()
		if got, want := time.Since(start), time.Minute; got != want {
			t.Errorf("six sleeps of 20s, two at a time, took %v, want %v", got, want)
		}
	})
}

// A peer whose handlers are all stuck holds up nobody but its own callers, who keep their deadlines.
func TestClient_Call_StuckPeer(t *testing.T) {
	inBubble(t, &rpc.Options{MaxInFlight: 1}, func(t *testing.T, w *world) {
		other := rpc.Serve(w.listen(t, "10.0.0.3:1"), w.handle, nil)
		defer other.Close()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { // stops at its deadline
				_, took, err := w.timed(5*time.Second, methodSleep, append(sleepBody(30*time.Second), make([]byte, 1<<20)...))
				if err == nil || took != 5*time.Second {
					t.Errorf("got %v after %v", err, took)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if _, err := w.client.Call(context.Background(), "10.0.0.3:1", methodEcho, nil); err != nil || time.Since(start) != 0 {
			t.Errorf("a call to another: got %v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

// A connection without calls is closed after Idle and dialled again when needed.
func TestClient_Call_Idle(t *testing.T) {
	inBubble(t, &rpc.Options{Idle: 10 * time.Second}, func(t *testing.T, w *world) {
		steps := []struct {
			pause time.Duration
			conns int
		}{{0, 1}, {5 * time.Second, 1}, {9 * time.Second, 1}, {12 * time.Second, 2}, {9 * time.Second, 2}, {time.Hour, 3}}
		for _, s := range steps {
			time.Sleep(s.pause)
			if _, took, err := w.timed(time.Second, methodEcho, nil); err != nil || took != 0 {
				t.Errorf("after %v: got %v after %v", s.pause, err, took)
			}
			if got := w.callers(); got != s.conns {
				t.Errorf("after %v: %d connections so far, want %d", s.pause, got, s.conns)
			}
		}
	})
}

// Calls that meet a connection at the moment when it ends as idle get another one; none fails.
func TestClient_Call_RacesIdleEnd(t *testing.T) {
	inBubble(t, &rpc.Options{Idle: time.Second, Dead: 300 * time.Millisecond}, func(t *testing.T, w *world) {
		for range 200 {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { // stops when its call has an answer
					if _, took, err := w.timed(time.Second, methodEcho, nil); err != nil || took != 0 {
						t.Errorf("got %v after %v", err, took)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // the tick that ends the connection is at the same instant as the next calls
		}
		if got := w.callers(); got < 50 {
			t.Errorf("only %d connections: the race was not run", got)
		}
	})
}

// A server that restarts at its address is reached again by the next call but one at the latest.
func TestClient_Call_ServerRestarts(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for i := range 20 {
			if _, _, err := w.timed(time.Second, methodEcho, nil); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			if err := errors.Join(w.server.Close(), w.servers.Close()); err != nil {
				t.Fatal(err)
			}
			w.serve(t, nil)
			synctest.Wait() // the client has seen the end
		}
	})
}

// Close of a server waits for handlers that ignore their context.
func TestServer_Close_WaitsForHandlers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		done := make(chan error, 1)
		go func() { // stops when the server closes, which the test waits for
			_, err := w.client.Call(context.Background(), serverAddr, methodSleep, sleepBody(7*time.Second))
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := w.server.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 7*time.Second; got != want {
			t.Errorf("close took %v, want %v", got, want)
		}
		if err := <-done; !errors.Is(err, rpc.ErrInterrupted) {
			t.Errorf("got %v, want ErrInterrupted", err)
		}
	})
}
