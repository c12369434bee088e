// Bench measures what oarlock promises about time, with real processes on real disks.
//
//	go run ./bench -failover            20 kills and 20 shutdowns of a node that owns about a third of 16 shards; 6 minutes
//	go run ./bench -failover -kills 3 -shutdowns 0 -v
//
// # Failover
//
// Three processes, each one node at default settings (ElectionTimeout 1 s, OwnerLease 0.8 s, SessionTTL 5 s) on loopback, with 16
// shards and a running Own. Before each measurement all three are ready and the victim, which goes round, owns at least five shards,
// a third. Then it is killed with SIGKILL, or told to call Shutdown. Afterwards it is started again on its directory.
//
// The clock is the parent's and begins just before the signal, or before the order is written to the victim's stdin. It ends when the parent has read, for
// every shard that the victim owned, that the callback of Own began in another process under a higher token. So the time includes all that a
// user would wait for: silence, election, the wait for the old lease, the claim, and the start of the callback. "Shutdown call" is the
// time that the call took in the victim; it includes leaving the gossip and closing the disk.
//
// p50 and p99 are exact order statistics: the smallest measured value that at least 50 or 99 of 100 values do not exceed. Nothing is
// interpolated or left out; with fewer than 100 values p99 is the largest. The machine must be idle otherwise: on a busy one the table shows the
// machine. The load average at begin and end is printed with it.
package main
