package fence

import (
	"errors"
	"fmt"
	"math"
)

// MaxToken is the largest token there is, so that tokens fit a signed 64-bit column.
const MaxToken = math.MaxInt64

// MaxResource is the longest name of a resource, in bytes. Names are bytes to a Guard; a database wants UTF-8 without
// zero bytes.
const MaxResource = 1024

// Errors. After any of them the write was not done by this package, and fn was not run.
var (
	// ErrStale: the resource has seen a larger token. Errors that match it are *StaleError. The grant has ended; take it anew.
	ErrStale = errors.New("stale fencing token")
	// ErrInvalid: a token is 0 or larger than MaxToken, or a name is empty or too long, or a setting is wrong.
	ErrInvalid = errors.New("invalid")
	// ErrMissing: the request carries no token.
	ErrMissing = errors.New("no fencing token")
	// ErrFull: the Guard has reached its Limit, and the resource is none that it knows.
	ErrFull = errors.New("guard is full")
)

// A StaleError refuses a write and says what was seen: Token is smaller than Seen, the highest token that the resource
// was shown so far. It matches ErrStale with errors.Is; get at the numbers with errors.As. The write was not done, and
// trying again with the same token cannot help.
type StaleError struct {
	Resource    string
	Token, Seen uint64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("write to %q rejected (token %d < %d): %v", e.Resource, e.Token, e.Seen, ErrStale)
}

// Is makes the error match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Compare is the rule of this package for a resource that keeps its highest token itself: nil if token is at least seen,
// the highest token shown so far (0: none), else a *StaleError; ErrInvalid for what is no token. The caller must see to
// it that nothing comes between the comparison and the write.
func Compare(resource string, token, seen uint64) error {
	if err := validate(resource, token); err != nil {
		return err
	}
	if token < seen {
		return &StaleError{Resource: resource, Token: token, Seen: seen}
	}
	return nil
}

func validate(resource string, token uint64) error {
	switch {
	case resource == "":
		return fmt.Errorf("check token %d: %w: the resource has no name", token, ErrInvalid)
	case len(resource) > MaxResource:
		return fmt.Errorf("check token %d: %w: the resource's name has %d bytes, at most %d are allowed", token, ErrInvalid, len(resource), MaxResource)
	case token == 0:
		return fmt.Errorf("check token of %q: %w: 0 is the token of a hold that never was", resource, ErrInvalid)
	case token > MaxToken:
		return fmt.Errorf("check token of %q: %w: %d is larger than any token", resource, ErrInvalid, token)
	}
	return nil
}
