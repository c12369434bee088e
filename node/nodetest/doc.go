// Package nodetest runs a cluster of package node in a test, in virtual time: real Raft, real gossip and a real store on a
// network and on disks in memory, inside a testing/synctest bubble. A minute of elections takes a fraction of a second.
//
//	func TestMyService(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := nodetest.New(t, 3, nil)
//			c.AwaitReady()
//			svc := NewMyService(c.Node(0))
//			c.Kill(c.Owner(1))
//			…
//		})
//	}
//
// # Faults
//
// Nodes are addressed by index, in the order they were made. A node can be killed, shut down, restarted, moved and wiped; the
// network between nodes parted, slowed and made lossy; a node paused; its clock frozen and stepped; its disk stalled, full or
// broken. Kill drops what was not synced, of the state and of the Raft log at one instant.
//
// # What is checked
//
// Without being asked, all the time and once more at the end, a Cluster checks that no two nodes own a shard at one
// instant, that ownership tokens rise, that replicas with the same applied index have the same state, that no node failed
// whose disk was sound, that the Raft library panics nowhere, that Open, Close and Shutdown end in time, and that a closed node leaves
// no port, file or goroutine behind. Track, Resource and History check holds, fenced
// writes and linearizability in addition. What is found is reported with t.Errorf.
//
// # What it is not
//
// It is not for benchmarks, and time does not pass while anything computes: it moves when every goroutine of the bubble
// waits. A goroutine that waits for a mutex does not count as waiting, so holding a mutex for long stops the time. Keep a
// bubble under three shards and a few virtual minutes.
package nodetest
