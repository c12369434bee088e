package node

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// failing things close what they wrap, and then say that it went wrong.
type (
	failingEndpoint struct {
		*memnet.Endpoint
		err error
	}
	failingClock struct {
		*env.Virtual
		err error
	}
	failingLocks struct {
		vfs.FS
		err error
	}
	failingLock struct {
		io.Closer
		err error
	}
)

func (f *failingEndpoint) Close() error { return errors.Join(f.Endpoint.Close(), f.err) }
func (f *failingClock) Close() error    { return errors.Join(f.Virtual.Close(), f.err) }
func (f *failingLock) Close() error     { return errors.Join(f.Closer.Close(), f.err) }

func (f *failingLocks) Lock(name string) (io.Closer, error) {
	l, err := f.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	return &failingLock{l, f.err}, nil
}

// What goes wrong while one part is closed is told by Close, together with the others' errors, and keeps no other part open: the node
// opens again at once (case 153).
func TestCase153_CloseErrors(t *testing.T) {
	errClose := [3]error{errors.New("transport"), errors.New("clock"), errors.New("lock")}
	for name, fails := range map[string][3]bool{"none": {}, "transport": {0: true}, "clock": {1: true}, "lock": {2: true}, "all": {true, true, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, memnet.New(memnet.Options{}))
				e := m.env()
				if fails[0] {
					e.Listen = func(bind, _ string, _ hclog.Logger) (transport.Transport, error) {
						p, err := m.net.Listen(bind)
						return &failingEndpoint{p, errClose[0]}, err
					}
				}
				if fails[1] {
					e.Clock = &failingClock{env.NewVirtual(time.Now()), errClose[1]}
				}
				if fails[2] {
					e.FS = &failingLocks{m.fs, errClose[2]}
				}
				n, err := Open(env.With(t.Context(), e), Config{Name: "n", Dir: "/data", Bind: memAddr(0), Bootstrap: 1, Shards: 1, Logger: hclog.NewNullLogger()})
				if err != nil {
					t.Fatal(err)
				}
				awaitReady(t, n)
				for range 2 { // the second says the same
					err = n.Close()
					for i, f := range fails {
						if errors.Is(err, errClose[i]) != f {
							t.Errorf("close: got %v, want the error of closing the %v: %v", err, errClose[i], f)
						}
					}
				}
				again := m.open(t, memAddr(0), nil)
				awaitReady(t, again)
			})
		})
	}
}
