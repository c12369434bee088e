package rpc

import (
	"encoding/binary"
	"sync"

	"github.com/oarlock/oarlock/transport"
)

const (
	highWater = 1 << 20 // when this much is queued, more must wait
	keepSize  = 1 << 18 // larger buffers are not kept for the next round
)

// An outbox gathers the frames that wait for a connection's writer, which takes all of them at once. It knows for each
// frame whether the writer has taken it.
type outbox struct {
	maxBody int
	wake    chan struct{} // one slot: there is something to take

	mu    sync.Mutex    // guards the fields below
	buf   []byte        // frames that were not taken
	spare []byte        // the buffer of the last round but one
	base  uint64        // how many bytes were taken before buf
	space chan struct{} // closed when buf is taken; nil while nobody waits
	err   error         // why nothing goes in any more
}

// A ticket names one frame: where it begins in the stream of all bytes that went through the outbox.
type ticket uint64

func newOutbox(maxBody int) *outbox {
	return &outbox{maxBody: maxBody, wake: make(chan struct{}, 1)}
}

// put queues m. If the outbox is full, and m does not have to go in, it queues nothing and returns a channel that is closed
// when there is room.
func (o *outbox) put(m *message, must bool) (ticket, <-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, nil, o.err
	}
	if len(o.buf) >= highWater && !must {
		if o.space == nil {
			o.space = make(chan struct{})
		}
		return 0, o.space, nil
	}
	at := ticket(o.base + uint64(len(o.buf)))
	empty := len(o.buf) == 0
	var err error
	if o.buf, err = appendMessage(o.buf, m, o.maxBody); err != nil {
		return 0, nil, err
	}
	if empty {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return at, nil, nil
}

// take returns all queued frames, which are then the writer's, or nothing. used is the buffer of the last round.
func (o *outbox) take(used []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cap(used) > 0 && cap(used) <= keepSize {
		o.spare = used[:0]
	}
	if o.err != nil || len(o.buf) == 0 {
		return nil
	}
	b := o.buf
	o.base += uint64(len(b))
	o.buf, o.spare = o.spare, nil
	if o.space != nil {
		close(o.space)
		o.space = nil
	}
	return b
}

// retract takes a request back if the writer has not taken it, and says whether it has not: then it will never leave.
func (o *outbox) retract(t ticket) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if uint64(t) < o.base {
		return false
	}
	if o.err != nil {
		return true
	}
	at := int(uint64(t) - o.base)
	size := int(binary.LittleEndian.Uint32(o.buf[at:]))
	frame := o.buf[at : at+transport.FrameHeader+size]
	frame[transport.FrameHeader] = byte(kindPing)
	// Its length has not changed, so it is within its bound.
	_ = transport.EndFrame(frame, 0, size)
	return true
}

// fail refuses everything from now on, with err. What was not taken will never leave.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.spare = nil
	if o.space != nil {
		close(o.space)
		o.space = nil
	}
}
