package node

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport/memnet"
)

// A store that cannot write fails its node: what was asked is not acknowledged, Err and Healthy say why, calls end with ErrClosed,
// and Close returns (case 105).
func TestOpen_StateFails(t *testing.T) {
	errDisk := errors.New("disk is broken")
	toggle := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpFileWrite || o.Kind == errorfs.OpFileSync || o.Kind == errorfs.OpFileSyncData {
			return errDisk
		}
		return nil
	})}
	m := &machine{net: memnet.New(memnet.Options{}), fs: errorfs.Wrap(vfs.NewMem(), toggle)} // its log is on disk
	e := m.env()
	e.RaftFS = nil
	c := Config{Name: "n", Dir: t.TempDir(), Bind: memAddr(0), Bootstrap: 1, Shards: 1, ElectionTimeout: minElectionTimeout, Logger: hclog.NewNullLogger()}
	n, err := Open(env.With(t.Context(), e), c)
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, n)
	toggle.On()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n.Err() == nil && ctx.Err() == nil { // the log has what the state is not synced for, until the state's buffer is full
		_, err = n.ShardAt(1).Put(ctx, "k", make([]byte, 256<<10), nil)
	}
	if err == nil || ctx.Err() != nil {
		t.Errorf("put: got %v within %v, want an error soon", err, 20*time.Second)
	}
	<-n.Done()
	if n.Err() == nil || n.Healthy() == nil || n.Status().State != StateFailed {
		t.Errorf("after the failure: err %v, state %v", n.Err(), n.Status().State)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s of a failed node: got %d %q", path, w.Code, w.Body)
		}
	}
	if _, err := n.ShardAt(1).Get(ctx, "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("get at a failed node: got %v, want ErrClosed", err)
	}
	if err := n.Close(); err == nil {
		t.Error("close of a failed node: got nil, want the store's error")
	}
}
