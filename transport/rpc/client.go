package rpc

import (
	"context"

	"fmt"
	"net"
	"sync"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// A Client makes calls, over one connection to each address, which it dials when needed and closes when idle. It is safe
// for concurrent use. NewClient makes it, Close ends it.
type Client struct {
	t      transport.Transport
	o      Options
	ctx    context.Context // ends when Close begins; bounds the dials
	cancel context.CancelFunc
	calls  sync.Pool // of *call
	wg     sync.WaitGroup

	mu     sync.RWMutex     // guards the fields below
	peers  map[string]*peer // by address
	closed bool
}

// NewClient makes a client that dials through t. It connects to nobody yet. The caller closes it, before t.
func NewClient(t transport.Transport, o *Options) *Client {
	c := &Client{t: t, o: o.withDefaults(), peers: make(map[string]*peer)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.calls.New = func() any { return &call{answer: make(chan answer, 1)} }
	return c
}

// Call sends a request to the handler at addr and waits for its answer, for ctx to end or for the connection to break.
// Errors: *RemoteError is the handler's; ErrNotSent means that it has not run and will not, ErrInterrupted that it may
// have; both wrap the reason, ctx.Err() and net.ErrClosed (after Close) included. It never sends twice. body is not kept
// after it returns; the answer is the caller's.
func (c *Client) Call(ctx context.Context, addr string, method uint16, body []byte) ([]byte, error) {
	if len(body) > c.o.MaxBody {
		return nil, notSent(addr, fmt.Errorf("%w: a body of %d bytes, at most %d", transport.ErrFrameTooLarge, len(body), c.o.MaxBody))
	}
	m := message{kind: kindRequest, code: method, body: body}
	for range 2 { // a connection that ended just now, as idle or broken, is replaced once
		if err := ctx.Err(); err != nil {
			return nil, notSent(addr, err)
		}
		conn, err := c.connection(ctx, addr)
		if err == nil {
			err = m.budget(ctx)
		}
		if err != nil {
			return nil, notSent(addr, err)
		}
		if b, err := conn.call(ctx, m); err != errRetired {
			return b, err
		}
	}
	return nil, notSent(addr, errRetired)
}

// budget sets the time that is left of ctx, or returns why there is none.
func (m *message) budget(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if m.timeout = time.Until(deadline); m.timeout <= 0 {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// Close breaks all connections and waits for the client's goroutines; calls in flight end with an error that wraps
// net.ErrClosed. It does not close the transport. It is idempotent.
func (c *Client) Close() error {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	var links []*link
	for _, p := range c.peers {
		if p.conn != nil {
			links = append(links, p.conn.link)
		}
	}
	c.mu.Unlock()
	for _, l := range links {
		l.close(net.ErrClosed)
	}
	c.wg.Wait()
	return nil
}

func notSent(addr string, err error) error {
	return fmt.Errorf("%w: call to %s: %w", ErrNotSent, addr, err)
}

func interrupted(addr string, err error) error {
	return fmt.Errorf("%w: call to %s: %w", ErrInterrupted, addr, err)
}
