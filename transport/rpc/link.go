package rpc

import (
	"bufio"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// readBuffer is how much a connection reads at a time: a whole batch of small frames.
const readBuffer = 32 << 10

// A link is one connection, as both sides see it: an outbox with its writer, pings, and a reader that notices silence.
// Its owner runs writeLoop in a goroutine and calls read from another.
type link struct {
	nc   net.Conn
	o    *Options
	out  *outbox
	in   *bufio.Reader
	done chan struct{} // closed when the link is broken
	once sync.Once
	err  error // why; set before done is closed
}

func newLink(nc net.Conn, o *Options) *link {
	l := &link{nc: nc, o: o, out: newOutbox(o.MaxBody), done: make(chan struct{})}
	l.in = bufio.NewReaderSize(&ear{nc: nc, dead: o.Dead}, readBuffer)
	return l
}

// close breaks the link: its connection is closed, its goroutines end, and what was not taken by the writer never leaves.
// The first reason stays.
func (l *link) close(err error) {
	l.once.Do(func() {
		l.err = err
		l.out.fail(err)
		close(l.done)
		_ = l.nc.Close() // whatever it says, the connection is of no more use
	})
}

// send queues m and waits for room until the link breaks or quit is closed; then stopped is true and m is not queued.
func (l *link) send(m *message, quit <-chan struct{}) (at ticket, stopped bool, err error) {
	for {
		at, full, err := l.out.put(m, false)
		if full == nil {
			return at, false, err
		}
		select {
		case <-full:
		case <-quit:
			return 0, true, nil
		}
	}
}

// writeLoop writes what is queued, as much as there is at a time, and a ping at each tick, after onTick. It ends when the
// link is broken.
func (l *link) writeLoop(onTick func()) {
	tick := time.NewTicker(l.o.Dead / pings)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
			onTick()
			// On a broken link it is refused, and the loop ends.
			_, _, _ = l.out.put(&message{kind: kindPing}, true)
		case <-l.out.wake:
		}
		// Whoever is about to queue something, because the last batch of answers woke many at once, gets the chance.
		runtime.Gosched()
		for b := l.out.take(nil); len(b) > 0; b = l.out.take(b) {
			if _, err := l.nc.Write(b); err != nil {
				l.close(err)
				return
			}
		}
	}
}

// read returns the next message, whose body lies in the buffer that is returned with it: buf if it fits.
func (l *link) read(buf []byte) (message, []byte, error) {
	buf, err := transport.ReadFrame(l.in, buf, maxPayload(l.o.MaxBody))
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errDead
		}
		return message{}, buf, err
	}
	m, err := parseMessage(buf)
	return m, buf, err
}

// An ear reads a connection and gives up when nothing comes for too long. Time counts only while it is read: a reader
// that pauses on purpose does not take the peer for dead.
type ear struct {
	nc   net.Conn
	dead time.Duration
	set  time.Time // when the deadline was last moved
}

func (r *ear) Read(b []byte) (int, error) {
	// Moving the deadline at each read would cost more than the read; it may be an eighth too late.
	if now := time.Now(); now.Sub(r.set) > r.dead/8 {
		if err := r.nc.SetReadDeadline(now.Add(r.dead + r.dead/8)); err != nil {
			return 0, err
		}
		r.set = now
	}
	return r.nc.Read(b)
}
