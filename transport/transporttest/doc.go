// Package transporttest is the one suite that every transport.Transport passes. The transports in this module run it on
// sockets, in memory, and in memory inside a bubble of virtual time, so that what a test learns in memory holds on a
// network too. It needs nothing but the interface; faults are tested where they can be made.
package transporttest
