//go:build !linux

package env

import "time"

// newSystemClock uses Go's monotonic clock: there is no boot clock here that runs through suspend and has timers, so on
// these systems a suspended machine may trust a lease too long. They are for development.
func newSystemClock() (*Virtual, error) { return NewVirtual(time.Now()), nil }
