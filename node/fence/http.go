package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// HTTP checks the tokens of requests before a handler sees them. Wrap the handlers that write; reads need no token. Who
// may send requests may also send a large token and lock everybody out, so authenticate before. All fields but Resource may
// be zero; set them before Handler is called.
type HTTP struct {
	// Resource names what a request writes to, by its path for example. It is required. An empty name is refused with 400.
	Resource func(*http.Request) string
	// Guard keeps the highest tokens, so that several handlers may share them. Nil: each Handler has one of its own.
	Guard *Guard
}

// Handler returns next behind the check. It answers 428 Precondition Required if the header is missing, 400 if it is
// garbled, 412 Precondition Failed if the token is smaller than one seen, which HeaderSeen and the text then tell, 503 if the
// Guard is full. Else next runs, alone on its resource: a request under a newer token waits until it has returned.
func (h HTTP) Handler(next http.Handler) http.Handler {
	if h.Resource == nil {
		panic("fence.HTTP: Resource is nil")
	}
	guard := h.Guard
	if guard == nil {
		guard = &Guard{}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := Token(r)
		if err == nil {
			ran := false
			err = guard.Do(r.Context(), h.Resource(r), token, func(context.Context) error {
				ran = true
				next.ServeHTTP(w, r)
				return nil
			})
			if ran {
				return
			}
		}
		refuse(w, err)
	})
}

// refuse answers a request that was not let in.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable // the Guard is full, or the client has gone
	switch stale, ok := errors.AsType[*StaleError](err); {
	case ok:
		w.Header().Set(HeaderSeen, strconv.FormatUint(stale.Seen, 10))
		status = http.StatusPreconditionFailed
	case errors.Is(err, ErrMissing):
		status = http.StatusPreconditionRequired
	case errors.Is(err, ErrInvalid):
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

// A Holder is what Transport takes tokens from: every hold of package node is one, whatever integer type its tokens have.
// Token returns the token of the grant, 0 if there is none; Check returns an error once the hold is no longer trusted. Both
// are called for each request, by many goroutines.
type Holder[T ~uint64] interface {
	Token() T
	Check() error
}

// Transport returns a RoundTripper that sends requests through base, http.DefaultTransport if nil, with the token of h. A
// request is not sent, and fails with the cause, if h says that it is lost or has no token. That spares a round trip and
// proves nothing: it may be lost a moment later, and then only the server's check holds. Refused reads its verdict.
func Transport[T ~uint64](h Holder[T], base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport[T]{holder: h, base: base}
}

type transport[T ~uint64] struct {
	holder Holder[T]
	base   http.RoundTripper
}

// RoundTrip leaves the request it is given as it is, and closes its body also if it fails, as the interface demands.
func (t *transport[T]) RoundTrip(r *http.Request) (*http.Response, error) {
	token := uint64(t.holder.Token())
	err := t.holder.Check()
	if err == nil && (token == 0 || token > MaxToken) {
		err = fmt.Errorf("%w: token %d of the hold", ErrInvalid, token)
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%s request under a hold: %w", r.Method, err)
	}
	r = r.Clone(r.Context())
	SetToken(r, token)
	return t.base.RoundTrip(r)
}
