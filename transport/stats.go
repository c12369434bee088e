package transport

// Stats are counters of one transport since it was opened. They only rise.
type Stats struct {
	Refused        uint64 // connections closed before any Accept saw them: bad header, too slow, unknown or unwanted protocol
	AcceptErrors   uint64 // errors of the listener, such as no free file descriptor; it goes on after each
	DroppedPackets uint64 // datagrams that arrived while the reader of Packets was too far behind
}
