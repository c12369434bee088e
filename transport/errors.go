package transport

import "errors"

// Errors of what arrives at the listener. They are not returned by any call; they explain the log line that tells of a
// refused connection.
var (
	errMagic   = errors.New("transport: not an oarlock connection")
	errVersion = errors.New("transport: unknown version of the connection header")
	errProto   = errors.New("transport: unknown protocol")
	errBacklog = errors.New("transport: nobody accepts connections of this protocol fast enough")
	errPending = errors.New("transport: too many connections have not sent their header yet")
)

// ErrInvalid says that a Config cannot work. The message names each field, its value and the mend.
var ErrInvalid = errors.New("transport: invalid config")
