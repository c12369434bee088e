package node

import (
	"context"
	"errors"
	"fmt"
)

// Errors. A write's error says either that it was not done, or, when it wraps ErrUnknown, that it may have been done or
// may be done yet.
var (
	// ErrClosed: the node is closed or closing. The call did nothing, unless the error wraps ErrUnknown too.
	ErrClosed = errors.New("node is closed")
	// ErrLost: what was held is no longer trusted. Lost is final; take it anew for a new token.
	ErrLost = errors.New("hold is lost")
	// ErrHandedOver: the ownership was given to another node in good order.
	ErrHandedOver = errors.New("ownership is handed over")
	// ErrUnknown: the write may have been done, or may be done yet. Read to find out.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrNotHeld: the hold was released before, or never was one.
	ErrNotHeld = errors.New("not held")
	// ErrFenced: the grant that guards the write is no longer current. The write was not done.
	ErrFenced = errors.New("fenced off by a newer token")
	// ErrHeld: somebody else holds the lock.
	ErrHeld = errors.New("held by another")
	// ErrAlreadyDone: the job has a completed run on record.
	ErrAlreadyDone = errors.New("already done")
	// ErrCompacted: the history no longer reaches back to the asked revision.
	ErrCompacted = errors.New("history is compacted")
	// ErrConflict: the record is not at the expected revision. The write was not done.
	ErrConflict = errors.New("record was changed meanwhile")
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("not found")
	// ErrBadValue: a record's value cannot be decoded, or is refused by Typed.Validate.
	ErrBadValue = errors.New("value is of no use")
	// ErrTooLarge: a key, value, name or transaction is beyond its limit. Nothing was done.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: an argument or setting is out of its bounds. Nothing was done.
	ErrInvalid = errors.New("invalid")
	// ErrNoQuorum: no owner could be reached before the call's time ran out, and the write was not done.
	ErrNoQuorum = errors.New("no owner with a majority was reached")
	// ErrForeignCluster: the peer or the directory belongs to another cluster.
	ErrForeignCluster = errors.New("foreign cluster")
	// ErrDirLocked: another process, or another node of this one, uses the directory or a copy of it. A node that finds out while it
	// runs fails with it, and a file COPIED in its directory forbids further starts until an operator decides which copy to keep.
	ErrDirLocked = errors.New("directory is in use")
	// ErrRemoved: this node was removed from its cluster.
	ErrRemoved = errors.New("node was removed from its cluster")
)

// gaveUp is the error of a call whose ctx ended: unknown if an attempt may have been proposed, else not done.
func gaveUp(ctx context.Context, what string, maybe bool) error {
	kind := ErrNoQuorum
	if maybe {
		kind = ErrUnknown
	}
	return fmt.Errorf("%s: %w: %w", what, kind, context.Cause(ctx))
}
