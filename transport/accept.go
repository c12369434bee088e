package transport

import (
	"net"
	"time"
)

// How long the listener rests after an error: twice as long after each in a row.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// acceptLoop hands each connection to a goroutine of its own. An error, such as no free file descriptor, never ends it.
func (t *TCP) acceptLoop() {
	var rest time.Duration
	for {
		c, err := t.listener.Accept()
		if t.ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil {
			t.stats.acceptErrors.Add(1)
			if rest == 0 {
				t.log.Warn("cannot accept connections, trying again", "err", err)
			}
			rest = min(max(2*rest, minBackoff), maxBackoff)
			t.rest(rest)
			continue
		}
		rest = 0
		t.admit(c)
	}
}

// rest waits, but not beyond Close.
func (t *TCP) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}

// admit reads the header of c in the background, or closes c at once if too many others have yet to send theirs.
func (t *TCP) admit(raw net.Conn) {
	select {
	case t.pending <- struct{}{}:
	default:
		t.refuse(raw, errPending)
		raw.Close()
		return
	}
	c, err := t.conns.add(raw)
	if err != nil { // closed meanwhile
		<-t.pending
		return
	}
	// Stops when the header has come, its deadline has passed, or Close has closed the connection; Close waits for it.
	t.wg.Go(func() {
		defer func() { <-t.pending }()
		if err := t.greet(c); err != nil {
			if t.ctx.Err() == nil {
				t.refuse(raw, err)
			}
			c.Close()
		}
	})
}

// greet brings an accepted connection to whoever accepts its protocol.
func (t *TCP) greet(c *conn) error {
	if err := c.SetDeadline(time.Now().Add(t.config.HeaderTimeout)); err != nil {
		return err
	}
	if err := c.secure(t.config.Wrap, true); err != nil {
		return err
	}
	p, err := readHeader(c)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	select {
	case t.accepts[p] <- c:
		return nil
	default:
		return errBacklog
	}
}

// refuse counts a refused connection and logs it, but not every one of a remote host that keeps trying.
func (t *TCP) refuse(c net.Conn, err error) {
	t.stats.refused.Add(1)
	host, _, splitErr := net.SplitHostPort(c.RemoteAddr().String())
	if splitErr != nil {
		host = c.RemoteAddr().String()
	}
	if unlogged, ok := t.refusals.note(host, time.Now()); ok {
		t.log.Warn("refused a connection", "peer", host, "err", err, "unlogged", unlogged)
	}
}
