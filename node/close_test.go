package node

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	raftvfs "github.com/lni/vfs"

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
	failingLock struct {
		io.Closer
		err error
	}
)

func (f *failingEndpoint) Close() error { return errors.Join(f.Endpoint.Close(), f.err) }
func (f *failingClock) Close() error    { return errors.Join(f.Virtual.Close(), f.err) }
func (f *failingLock) Close() error     { return errors.Join(f.Closer.Close(), f.err) }

// failingLocks fails to give back the locks of one directory.
type failingLocks struct {
	vfs.FS
	dir string
	err error
}

func (f *failingLocks) Lock(name string) (io.Closer, error) {
	l, err := f.FS.Lock(name)
	if err != nil || path.Dir(name) != f.dir {
		return l, err
	}
	return &failingLock{l, f.err}, nil
}

// failingRaftLocks fails to give back the locks of the Raft library.
type failingRaftLocks struct {
	logDisk
	err error
}

func (f failingRaftLocks) Lock(name string) (io.Closer, error) {
	l, err := f.logDisk.Lock(name)
	if err != nil {
		return nil, err
	}
	return &failingLock{l, f.err}, nil
}

// closeFaults make the close of one part of a node fail with an error. The rpc server and client, gossip and the log's bridge have nothing
// whose close can fail.
func closeFaults(m *machine) map[string]func(e *env.Env, err error) {
	return map[string]func(e *env.Env, err error){
		"transport": func(e *env.Env, err error) {
			e.Listen = func(bind, _ string, _ hclog.Logger) (transport.Transport, error) {
				p, lerr := m.net.Listen(bind)
				return &failingEndpoint{p, err}, lerr
			}
		},
		"clock":     func(e *env.Env, err error) { e.Clock = &failingClock{env.NewVirtual(time.Now()), err} },
		"directory": func(e *env.Env, err error) { e.FS = &failingLocks{e.FS, "/data", err} },
		"state":     func(e *env.Env, err error) { e.FS = &failingLocks{e.FS, path.Join("/data", stateDir), err} },
		"raft": func(e *env.Env, err error) {
			e.RaftFS = raftvfs.Wrap(failingRaftLocks{m.log, err}, noFault{})
		},
	}
}

// What goes wrong while one part is closed is told by Close, together with the others' errors, and keeps no other part open: the node
// opens again at once (case 153).
func TestCase153_CloseErrors(t *testing.T) {
	all := []string{"transport", "clock", "directory", "state", "raft"}
	for name, fails := range map[string][]string{"none": nil, "transport": all[:1], "clock": all[1:2], "directory": all[2:3], "state": all[3:4], "raft": all[4:], "all": all} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, memnet.New(memnet.Options{}))
				e := m.env()
				for _, part := range fails {
					closeFaults(m)[part](e, errors.New("broken "+part))
				}
				n, err := Open(env.With(t.Context(), e), Config{Name: "n", Dir: "/data", Bind: memAddr(0), Bootstrap: 1, Shards: 1, Logger: hclog.NewNullLogger()})
				if err != nil {
					t.Fatal(err)
				}
				awaitReady(t, n)
				for range 2 { // the second says the same
					err = n.Close()
					for _, part := range all { // by their text, since the Raft library panics with one
						got, want := strings.Contains(fmt.Sprint(err), "broken "+part), slices.Contains(fails, part)
						if got != want {
							t.Errorf("close: got %v, want the error of closing the %s: %v", err, part, want)
						}
					}
				}
				again := m.open(t, memAddr(0), nil)
				awaitReady(t, again)
			})
		})
	}
}
