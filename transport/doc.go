// Package transport moves bytes between the processes of a cluster. It knows nothing of Raft or gossip.
//
// One address carries everything: a TCP port and the UDP port of the same number. Each TCP connection begins with a
// header of six bytes, a magic number, a version and the Proto that the connection speaks; the accepting side hands it
// to whoever calls Accept for that Proto. Packets are datagrams, used by gossip only.
//
// Listen makes the real transport, on sockets. Package memnet makes the same in memory, with faults, for tests; both
// pass the one suite in package transporttest. Package rpc builds calls on top.
//
// # Contract
//
// Ordering: a connection keeps the order of its bytes; nothing is said about two connections or about packets.
// Blocking: Accept, and Dial within its context, wait; both end when the transport is closed. Reads and writes of
// connections block and have deadlines as net.Conn says. A slow reader of packets loses packets.
// Failure: a broken connection reports an error at the next use, or nothing at all if the path silently swallows bytes:
// users must bound their waits by deadlines or traffic of their own. Nothing received from the network makes the
// process panic, exit, or allocate more than a bound. Close frees the address at once.
//
// The transport authenticates nobody by itself: Config.Wrap is where TLS enters. Packets are protected by whoever
// sends them.
package transport
