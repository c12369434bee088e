package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// bufferSize bounds what one direction of a connection holds: on the way, and arrived but not read.
const bufferSize = 256 << 10

// A stream is one direction of a connection. Its bytes are first on their way, then arrived. They arrive when they are
// due and the path is open; that is worked out when somebody looks, so no goroutine carries them.
type stream struct {
	n       *Network
	path    path
	cond    *sync.Cond // on the network's lock: anything about this stream changed
	buf     []byte     // arrived bytes, then those on their way
	arrived int        // how many of buf have arrived
	marks   []mark     // when the rest of buf is due
	timer   *time.Timer
	reads   deadline
	writes  deadline
	end     ending
}

// A mark says when the next size bytes are due.
type mark struct {
	size int
	due  time.Time
}

// An ending is how far a stream is from over.
type ending struct {
	reset   bool      // broken by the network; both sides see it
	fin     bool      // the writer closed
	finDue  time.Time // when the reader may learn that
	eof     bool      // the reader may know that
	gone    bool      // the reader closed
	writing bool      // a Write is under way; others queue, so that two never mix
}

func newStream(n *Network, p path) *stream {
	s := &stream{n: n, path: p, cond: sync.NewCond(&n.mu)}
	n.streams[s] = struct{}{}
	return s
}

// read waits for bytes, an end, a reset or the deadline.
func (s *stream) read(b []byte) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	for {
		now := time.Now()
		s.settleLocked(now)
		switch {
		case s.end.gone:
			return 0, net.ErrClosed
		case s.end.reset:
			return 0, syscall.ECONNRESET
		case s.reads.passed(now):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case s.arrived > 0:
			return s.takeLocked(b), nil
		case s.end.eof:
			return 0, io.EOF
		}
		s.armLocked(now)
		s.cond.Wait()
	}
}

// takeLocked copies what has arrived to b and makes room for the writer.
func (s *stream) takeLocked(b []byte) int {
	k := copy(b, s.buf[:s.arrived])
	s.buf = s.buf[k:]
	s.arrived -= k
	if len(s.buf) == 0 {
		s.buf = nil // so that an idle connection holds no memory
	}
	s.cond.Broadcast()
	return k
}

// write puts b on its way and waits while the buffer is full.
func (s *stream) write(b []byte) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	done, mine := 0, false
	defer func() {
		if mine {
			s.end.writing = false
			s.cond.Broadcast()
		}
	}()
	for {
		now := time.Now()
		switch {
		case s.end.fin:
			return done, net.ErrClosed
		case s.end.reset:
			return done, syscall.ECONNRESET
		case s.writes.passed(now):
			return done, os.ErrDeadlineExceeded
		case s.end.gone && s.n.openLocked(s.path) && s.n.openLocked(s.path.back()):
			return done, syscall.EPIPE
		case s.end.writing && !mine:
			s.cond.Wait()
			continue
		}
		mine, s.end.writing = true, true
		if room := bufferSize - len(s.buf); room > 0 {
			k := min(room, len(b)-done)
			s.sendLocked(b[done:done+k], now)
			done += k
		}
		if done == len(b) {
			return done, nil
		}
		s.cond.Wait()
	}
}

// sendLocked puts b on its way.
func (s *stream) sendLocked(b []byte, now time.Time) {
	if len(b) == 0 {
		return
	}
	s.buf = append(s.buf, b...)
	due := s.dueLocked(now)
	if i := len(s.marks) - 1; i >= 0 && s.marks[i].due.Equal(due) {
		s.marks[i].size += len(b)
	} else {
		s.marks = append(s.marks, mark{size: len(b), due: due})
	}
	s.cond.Broadcast()
}

// dueLocked draws when something sent now is due. What was sent earlier still comes first, even if it is due later.
func (s *stream) dueLocked(now time.Time) time.Time {
	return now.Add(s.n.delayLocked(s.path) + s.n.retransmitLocked(s.path))
}

// settleLocked lets everything arrive that is due, if the path is open.
func (s *stream) settleLocked(now time.Time) {
	if len(s.marks) == 0 && !s.end.fin || !s.n.openLocked(s.path) {
		return
	}
	i := 0
	for ; i < len(s.marks) && !s.marks[i].due.After(now); i++ {
		s.arrived += s.marks[i].size
	}
	s.marks = s.marks[i:]
	if len(s.marks) == 0 && s.end.fin && !s.end.finDue.After(now) {
		s.end.eof = true
	}
}

// armLocked wakes the readers when the next thing is due. While the path is closed a change of the paths does that.
func (s *stream) armLocked(now time.Time) {
	var due time.Time
	switch {
	case !s.n.openLocked(s.path):
		return
	case len(s.marks) > 0:
		due = s.marks[0].due
	case s.end.fin:
		due = s.end.finDue
	default:
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(due.Sub(now), s.wake)
	} else {
		s.timer.Reset(due.Sub(now))
	}
}

func (s *stream) wake() {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.cond.Broadcast()
}

// closeWriteLocked is the writer's close: the reader gets what is on its way, then io.EOF.
func (s *stream) closeWriteLocked(now time.Time) {
	if !s.end.fin {
		s.end.fin, s.end.finDue = true, s.dueLocked(now)
	}
	s.writes.stop()
	s.doneLocked()
}

// closeReadLocked is the reader's close: what is in the stream is lost.
func (s *stream) closeReadLocked() {
	s.end.gone = true
	s.reads.stop()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.doneLocked()
}

// resetLocked breaks the stream for both sides.
func (s *stream) resetLocked() {
	s.end.reset = true
	s.doneLocked()
}

func (s *stream) doneLocked() {
	if s.end.reset || s.end.fin && s.end.gone {
		delete(s.n.streams, s)
		s.buf, s.marks, s.arrived = nil, nil, 0
	}
	s.cond.Broadcast()
}

// A deadline wakes its stream when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed(now time.Time) bool { return !d.at.IsZero() && !now.Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

// setLocked moves the deadline of s to at and makes waiters look.
func (d *deadline) setLocked(s *stream, at time.Time) {
	d.stop()
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.wake)
	}
	s.cond.Broadcast()
}
