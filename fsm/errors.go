package fsm

import (
	"errors"
	"fmt"
)

// Errors of the state machine. Those of a single command are in Applied.Err and mean that the command changed
// nothing; those that Apply returns mean that the machine stopped before the entry that caused them.
var (
	// ErrStale refuses a batch whose stamp is not the token of the unreleased current claim. Nothing of it was done.
	ErrStale = errors.New("stamp is not the current owner's")
	// ErrInvalid refuses a command that is not well formed. Nothing of it was done, on any replica.
	ErrInvalid = errors.New("command is not well formed")
	// ErrVersion reports a command, stored state or snapshot written in a version that this machine does not know.
	ErrVersion = errors.New("version is not supported")
	// ErrHalted refuses to go on after an entry that the machine did not understand. Reads go on working.
	ErrHalted = errors.New("state machine is halted")
	// ErrFailed refuses to go on after the storage failed in the middle of an Apply. Open the machine again.
	ErrFailed = errors.New("state machine has failed")
	// ErrCorrupt reports stored state or a snapshot that cannot have been written by this package.
	ErrCorrupt = errors.New("state is corrupt")
	// ErrCompacted reports that history was asked for which is forgotten. A *CompactedError says what is left.
	ErrCompacted = errors.New("history is compacted")
	// ErrFuture reports that a revision was asked for which the machine has not reached.
	ErrFuture = errors.New("revision is not reached yet")
	// ErrNotFound reports that a key has no record.
	ErrNotFound = errors.New("key not found")
	// ErrStopped reports that the stop channel ended a Save or Restore. Nothing changed.
	ErrStopped = errors.New("stopped by the caller")
	// ErrClosed reports use after Close.
	ErrClosed = errors.New("state machine is closed")
)

// A CompactedError is ErrCompacted with the first revision whose history is kept. The state is known as of the revision
// before it, and as of all later ones.
type CompactedError struct {
	Oldest Revision
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v: it begins at revision %d", ErrCompacted, e.Oldest)
}

// Unwrap makes it ErrCompacted.
func (e *CompactedError) Unwrap() error { return ErrCompacted }
