package raftnet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/transport/memnet"
)

// A peer that refuses at once is dialled less and less often, at most twice a second in the end, whatever Raft has to send; and when it
// is back, at its address or another, messages flow within the longest wait. Dials that followed each other at once would keep a core busy.
func TestConn_RefusedAtOnce(t *testing.T) {
	for name, back := range map[string]string{"SameAddress": "b:1", "NewAddress": "b:2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, addrs := memnet.New(memnet.Options{}), new(book)
				a := newHost(t, listen(t, n, "a:1"), addrs, nodeA, clusterX)
				addrs.set(nodeB, "b:1") // nobody listens there
				c := a.connect(nodeB)
				for i := range uint64(3000) {
					a.send(c, nodeA, i)
					time.Sleep(10 * time.Millisecond)
				}
				const half, first = uint64(30 * time.Second / redialMax), 10
				got := a.f.Stats()
				if got.Dials < half/2 || got.Dials > half+first || got.DialErrors != got.Dials {
					t.Errorf("got %d dials in 30 s, of which %d failed, want all and about %d", got.Dials, got.DialErrors, half)
				}
				b := newHost(t, listen(t, n, back), addrs, nodeB, clusterX)
				if took := a.flows(c, nodeA, b, 5*time.Second); took > redialMax+50*time.Millisecond {
					t.Errorf("messages flow again after %v, want %v at most", took, redialMax)
				}
			})
		})
	}
}
