package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// A Request is what a handler gets.
type Request struct {
	Method uint16
	From   string // the caller's remote address: who it is, the body must say
	Body   []byte // valid until the handler returns; copy what must last
}

// A Handler answers one request. It runs in a goroutine of its own. ctx ends when the caller's deadline passes (sent along
// as a relative timeout), when the caller gives up, when the connection breaks, and when the server closes. The body it
// returns, which may be the request's, must not be changed afterwards. An error travels as a RemoteError. A panic is not recovered.
type Handler func(ctx context.Context, r Request) (body []byte, err error)

// A Server accepts connections of protocol RPC and runs a handler for each request. Serve makes it, Close ends it.
type Server struct {
	t      transport.Transport
	h      Handler
	o      Options
	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	tasks  sync.Pool // of *task
	wg     sync.WaitGroup
}

// acceptRest is how long the server waits after an error of Accept that is not the transport's end.
const acceptRest = 50 * time.Millisecond

// Serve starts to answer calls that arrive at t with h. It does not block. The caller closes the server, before t; it
// ends by itself when t is closed, but only Close waits for its handlers.
func Serve(t transport.Transport, h Handler, o *Options) *Server {
	s := &Server{t: t, h: h, o: o.withDefaults()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tasks.New = func() any { return new(task) }
	// Stops when Close begins or t is closed; Close waits for it.
	s.wg.Go(s.acceptLoop)
	return s
}

// Close stops accepting, breaks all connections, ends the contexts of the handlers and waits for them and for all
// goroutines of the server. Their callers see an interrupted call. It is idempotent, and must not be called from a
// handler.
func (s *Server) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *Server) acceptLoop() {
	for {
		nc, err := transport.AcceptContext(s.ctx, s.t, transport.RPC)
		switch {
		case err == nil && s.ctx.Err() == nil:
			s.start(nc)
		case err == nil:
			_ = nc.Close()
			return
		case s.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			s.o.Logger.Warn("cannot accept calls, trying again", "err", err)
			s.rest(acceptRest)
		}
	}
}

// rest waits, but not beyond Close.
func (s *Server) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// start serves one connection.
func (s *Server) start(nc net.Conn) {
	c := newServerConn(s, nc)
	// Close breaks the link through this; it is undone when the link breaks first.
	undo := context.AfterFunc(s.ctx, func() { c.link.close(net.ErrClosed) })
	// Stops when the link breaks, which Close sees to; Close waits for it.
	s.wg.Go(func() { c.link.writeLoop(func() {}) })
	// Stops when the link breaks, which Close sees to; Close waits for it.
	s.wg.Go(func() {
		defer undo()
		c.readLoop()
	})
}
