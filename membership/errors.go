package membership

import "errors"

// The errors of this package.
var (
	// ErrInvalid says that a configuration or a change of a record is not acceptable; the text names field and value.
	ErrInvalid = errors.New("membership: invalid")
	// ErrTooLarge says that a node's own record does not fit into MaxRecord bytes.
	ErrTooLarge = errors.New("membership: record too large")
	// ErrClosed says that the Membership was closed or has left.
	ErrClosed = errors.New("membership: closed")

	errMalformed = errors.New("malformed record")
	errVersion   = errors.New("record of a newer version")
	errStale     = errors.New("record of an earlier incarnation")
	errRival     = errors.New("record of another process with that id")
	errFull      = errors.New("too many members")
)
