package fence

import (
	"fmt"
	"net/http"
	"strconv"
)

// Headers of the HTTP side. Their values are tokens in decimal, without sign, spaces or leading zeros.
const (
	Header     = "Oarlock-Token"      // of a request: the token that it is made under
	HeaderSeen = "Oarlock-Token-Seen" // of an answer that refuses it: the highest token seen
)

// SetToken puts the token of the grant under which a request is made into its header, in place of any other. It checks
// nothing: the server refuses 0, the token of a hold that never was. A request made under a hold keeps its token when the
// hold ends, and that is the point: the server can tell.
func SetToken(r *http.Request, token uint64) {
	r.Header.Set(Header, strconv.FormatUint(token, 10))
}

// Token returns the token in the header of a request: ErrMissing if there is none; ErrInvalid if there are several, or what
// is there is not exactly what SetToken writes for a token from 1 to MaxToken. It compares nothing: that is what a Guard, or
// SQL in the handler's transaction, is for.
func Token(r *http.Request) (uint64, error) {
	return parseHeader(r.Header.Values(Header))
}

// Refused tells what a server's answer says of the token: nil if it is not about tokens, else a *StaleError with the path of
// the request as the resource, or ErrMissing. It reads no body and closes none, that is left to the caller.
func Refused(resp *http.Response) error {
	var path string
	var token uint64
	if resp.Request != nil {
		path = resp.Request.URL.Path
		token, _ = Token(resp.Request)
	}
	switch resp.StatusCode {
	case http.StatusPreconditionFailed:
		if seen, err := parseHeader(resp.Header.Values(HeaderSeen)); err == nil {
			return &StaleError{Resource: path, Token: token, Seen: seen}
		}
	case http.StatusPreconditionRequired:
		return fmt.Errorf("request for %q: %w", path, ErrMissing)
	}
	return nil
}

func parseHeader(values []string) (uint64, error) {
	switch {
	case len(values) == 0:
		return 0, fmt.Errorf("header %s: %w", Header, ErrMissing)
	case len(values) > 1:
		return 0, fmt.Errorf("header %s: %w: it is there %d times", Header, ErrInvalid, len(values))
	}
	return parse(values[0])
}

// parse is strict: a token has one spelling, so that no two parties can read a header differently.
func parse(value string) (uint64, error) {
	token, err := strconv.ParseUint(value, 10, 63)
	if err != nil || token == 0 || value[0] == '0' {
		const most = 40 // bytes of it that are worth repeating
		return 0, fmt.Errorf("header %s: %w: %.*q is no token from 1 to %d", Header, ErrInvalid, most, value, uint64(MaxToken))
	}
	return token, nil
}
