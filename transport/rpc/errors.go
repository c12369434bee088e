package rpc

import (
	"errors"
	"fmt"
)

// Errors of Call. Each comes wrapped together with its reason, so that errors.Is finds both.
var (
	// ErrNotSent says that the handler certainly has not run and will not: the request never left.
	ErrNotSent = errors.New("rpc: not sent")
	// ErrInterrupted says that the handler may have run, may be running or may yet run: the outcome is unknown.
	ErrInterrupted = errors.New("rpc: interrupted")
)

// Reasons why a connection was broken.
var (
	errDead     = errors.New("rpc: nothing heard from the peer for too long")
	errIdle     = errors.New("rpc: the connection was idle")
	errRetired  = errors.New("rpc: the connection ended before it took the request")
	errProtocol = errors.New("rpc: protocol violation")
)

// RemoteError is a handler's error as the caller gets it. A handler that returns one, or an error that wraps one, chooses
// code and text; any other error travels as its text with code 0.
type RemoteError struct {
	Code uint16
	Text string
}

// Error returns the text and the code.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("rpc: remote error %d: %s", e.Code, e.Text)
}

// remote gives any handler's error the form in which it travels.
func remote(err error) *RemoteError {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return e
	}
	return &RemoteError{Text: err.Error()}
}
