package memnet_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
	"github.com/oarlock/oarlock/transport/transporttest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func pair(t *testing.T, n *memnet.Network) (a, b *memnet.Endpoint) {
	t.Helper()
	a, err := n.Listen("10.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if b, err = n.Listen("10.0.0.2:7400"); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// The network in memory behaves as sockets do, in real time.
func TestEndpoint_Conformance(t *testing.T) {
	var n *memnet.Network
	transporttest.Run(t, func(t *testing.T) (transport.Transport, transport.Transport) {
		n = memnet.New(memnet.Options{})
		a, b := pair(t, n)
		return a, b
	}, func(t *testing.T, addr string) (transport.Transport, error) {
		e, err := n.Listen(addr)
		return e, err
	})
}

// The same holds in a bubble of virtual time, without and with delay; a bubble ends only when no goroutine is left.
func TestEndpoint_ConformanceInBubble(t *testing.T) {
	for name, o := range map[string]memnet.Options{"plain": {}, "delayed": {Delay: 3e6, Jitter: 5e6}} {
		t.Run(name, func(t *testing.T) {
			var n *memnet.Network
			for _, c := range transporttest.Cases(func(t *testing.T, addr string) (transport.Transport, error) {
				e, err := n.Listen(addr)
				return e, err
			}) {
				t.Run(c.Name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						n = memnet.New(o)
						a, b := pair(t, n)
						c.Run(t, a, b)
						a.Close()
						b.Close()
					})
				})
			}
		})
	}
}
