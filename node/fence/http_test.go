package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node/fence"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// ask sends a request with the header values to h, and returns the answer.
func ask(h http.Handler, path string, values ...string) *http.Response {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPut, path, http.NoBody)
	r.Header[fence.Header] = values
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp
}

// Each outcome of the check has its status, and only what is let in reaches the handler; the refusal says what was seen.
func TestHTTP_Handler_Statuses(t *testing.T) {
	var ran []string
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = append(ran, r.Header.Get(fence.Header))
		w.WriteHeader(http.StatusNoContent)
	})
	h := fence.HTTP{Resource: byPath, Guard: &fence.Guard{Limit: 1}}.Handler(next)
	for _, c := range []struct {
		path   string
		values []string
		status int
		seen   string
	}{
		{"/a", []string{"33"}, http.StatusNoContent, ""},
		{"/a", []string{"33"}, http.StatusNoContent, ""},
		{"/a", []string{"34"}, http.StatusNoContent, ""},
		{"/a", []string{"33"}, http.StatusPreconditionFailed, "34"},
		{"/a", nil, http.StatusPreconditionRequired, ""},
		{"/a", []string{"x"}, http.StatusBadRequest, ""},
		{"/a", []string{"35", "36"}, http.StatusBadRequest, ""},
		{"/", []string{"35"}, http.StatusBadRequest, ""},
		{"/b", []string{"35"}, http.StatusServiceUnavailable, ""},
		{"/a", []string{"34"}, http.StatusNoContent, ""},
	} {
		resp := ask(h, c.path, c.values...)
		if resp.StatusCode != c.status || resp.Header.Get(fence.HeaderSeen) != c.seen {
			t.Errorf("%s with %q: got %d and %s = %q, want %d and %q",
				c.path, c.values, resp.StatusCode, fence.HeaderSeen, resp.Header.Get(fence.HeaderSeen), c.status, c.seen)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || c.seen != "" && !strings.Contains(string(body), "token 33 < 34") {
			t.Errorf("%s with %q: got text %q, %v, want both tokens in it", c.path, c.values, body, err)
		}
	}
	if diff := cmp.Diff([]string{"33", "33", "34", "34"}, ran); diff != "" {
		t.Errorf("the handler ran for: %s", diff)
	}
}

// Handlers that share a Guard refuse by what any of them saw; those that share none are apart.
func TestHTTP_Handler_SharedGuard(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, shared := range []bool{true, false} {
		h := fence.HTTP{Resource: byPath}
		if shared {
			h.Guard = &fence.Guard{}
		}
		one, two := h.Handler(next), h.Handler(next)
		ask(one, "/a", "34")
		want := map[bool]int{true: http.StatusPreconditionFailed, false: http.StatusOK}[shared]
		if got := ask(two, "/a", "33").StatusCode; got != want {
			t.Errorf("shared %v: got %d, want %d", shared, got, want)
		}
	}
}

// The handler is alone on its resource while it runs, and no longer than that, also if it panics.
func TestHTTP_Handler_AloneOnResource(t *testing.T) {
	g := &fence.Guard{}
	abort := false
	h := fence.HTTP{Resource: byPath, Guard: g}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := g.Do(ctx, "a", 35, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another writer while the handler runs: got %v, want it to wait", err)
		}
		if abort {
			panic(http.ErrAbortHandler)
		}
	}))
	if got := ask(h, "/a", "35").StatusCode; got != http.StatusOK {
		t.Errorf("got %d, want 200", got)
	}
	abort = true
	func() {
		defer func() { recover() }()
		ask(h, "/a", "35")
	}()
	if err := g.Check("a", 35); err != nil {
		t.Errorf("after the handlers: got %v, want nil", err)
	}
}

// A missing Resource is a mistake in the program, told when the handler is made.
func TestHTTP_Handler_NilResource(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Handler of an HTTP without Resource: want a panic")
		}
	}()
	fence.HTTP{}.Handler(http.NotFoundHandler())
}

// lease stands for a hold.
type lease struct {
	token seqNo
	err   error
}

type seqNo uint64

func (l *lease) Token() seqNo { return l.token }
func (l *lease) Check() error { return l.err }

// closer is a body that knows whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

// Client and server agree: a request under a hold carries its token, the older one's is refused, Refused reads the verdict.
func TestTransport_Refused(t *testing.T) {
	h := fence.HTTP{Resource: byPath}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server := httptest.NewServer(h)
	defer server.Close()
	put := func(c *http.Client) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/a", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if r.Header.Get(fence.Header) != "" {
			t.Error("the caller's request was changed")
		}
		return fence.Refused(resp)
	}
	client := func(token seqNo) *http.Client {
		return &http.Client{Transport: fence.Transport(&lease{token: token}, server.Client().Transport)}
	}
	for _, token := range []seqNo{33, 34, 34} {
		if err := put(client(token)); err != nil {
			t.Errorf("token %d: got %v, want it accepted", token, err)
		}
	}
	wantStale(t, put(client(33)), "/a", 33, 34)
	if err := put(server.Client()); !errors.Is(err, fence.ErrMissing) {
		t.Errorf("without a token: got %v, want ErrMissing", err)
	}
}

// A 412 that is about something else than tokens, or says nothing useful, is no refusal of the token.
func TestRefused_OtherAnswers(t *testing.T) {
	for _, seen := range []string{"", "x", "0"} {
		resp := &http.Response{StatusCode: http.StatusPreconditionFailed, Header: http.Header{fence.HeaderSeen: {seen}}}
		if err := fence.Refused(resp); err != nil {
			t.Errorf("412 with seen %q: got %v, want nil", seen, err)
		}
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{fence.HeaderSeen: {"34"}}}
	if err := fence.Refused(resp); err != nil {
		t.Errorf("200: got %v, want nil", err)
	}
}

// Nothing is sent under a hold that is lost or was never there; the body is closed and the cause is told: case 164.
func TestTransport_LostIsNotSent(t *testing.T) {
	lost := errors.New("hold is lost")
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") })
	for _, c := range []struct {
		lease lease
		want  error
	}{{lease{34, lost}, lost}, {lease{0, nil}, fence.ErrInvalid}, {lease{fence.MaxToken + 1, nil}, fence.ErrInvalid}} {
		body := &closer{Reader: strings.NewReader("x")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://r/a", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := fence.Transport(&c.lease, base).RoundTrip(r)
		if resp != nil {
			resp.Body.Close()
		}
		if !errors.Is(err, c.want) || !body.closed {
			t.Errorf("%+v: got %v, body closed: %v, want %v and true", c.lease, err, body.closed, c.want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func ExampleHTTP() {
	accounts := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "written") })
	fenced := fence.HTTP{Resource: func(r *http.Request) string { return r.URL.Path }}
	server := httptest.NewServer(fenced.Handler(accounts))
	defer server.Close()

	for _, token := range []uint64{34, 33} {
		r, err := http.NewRequest(http.MethodPut, server.URL+"/accounts/7", strings.NewReader("balance=90"))
		if err != nil {
			panic(err)
		}
		fence.SetToken(r, token) // or: a client with fence.Transport(lock, nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(resp.Status, fence.Refused(resp))
	}
	// Output:
	// 200 OK <nil>
	// 412 Precondition Failed write to "/accounts/7" rejected (token 33 < 34): stale fencing token
}
