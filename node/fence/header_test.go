package fence_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/oarlock/oarlock/node/fence"
)

func request(values ...string) *http.Request {
	return &http.Request{Header: http.Header{fence.Header: values}}
}

// What SetToken writes, Token reads; it replaces what was there.
func TestToken_RoundTrip(t *testing.T) {
	for _, token := range []uint64{1, 9, 10, 33, 1 << 52, fence.MaxToken} {
		r := request("5", "6")
		fence.SetToken(r, token)
		if got, err := fence.Token(r); got != token || err != nil {
			t.Errorf("token %d: got %d, %v", token, got, err)
		}
	}
}

// A token has one spelling: everything else is invalid, and no header at all is told apart from it.
func TestToken_Strict(t *testing.T) {
	for _, values := range [][]string{
		{""}, {"0"}, {"00"}, {"033"}, {"+33"}, {"-33"}, {" 33"}, {"33 "}, {"3 3"}, {"3_3"}, {"0x21"}, {"33.0"}, {"1e3"}, {"３３"}, {"33,34"},
		{"9223372036854775808"}, {"18446744073709551616"}, {strings.Repeat("9", 1<<16)}, {"33", "33"}, {"33", "34"},
	} {
		got, err := fence.Token(request(values...))
		if !errors.Is(err, fence.ErrInvalid) || got != 0 {
			t.Errorf("%.40q: got %d, %v, want ErrInvalid", values, got, err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.40q: the message has %d bytes", values, len(err.Error()))
		}
	}
	if _, err := fence.Token(request()); !errors.Is(err, fence.ErrMissing) {
		t.Errorf("no header: got %v, want ErrMissing", err)
	}
}

// Token never panics, and what it accepts is exactly what SetToken would write.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "0", "33", "033", "+1", "9223372036854775807", "9223372036854775808", " 1", "１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, err := fence.Token(request(value))
		if err != nil {
			if token != 0 || !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("%q: got %d, %v, want 0 and ErrInvalid", value, token, err)
			}
			if n, perr := strconv.ParseInt(value, 10, 64); perr == nil && strconv.FormatInt(n, 10) == value && n > 0 {
				t.Errorf("%q was refused: %v", value, err)
			}
			return
		}
		r := request()
		fence.SetToken(r, token)
		if got := r.Header.Get(fence.Header); got != value || token == 0 || token > fence.MaxToken {
			t.Errorf("%q was read as %d, which is written as %q", value, token, got)
		}
	})
}
