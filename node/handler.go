package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// leaderless is how long a replica that hears of no leader keeps the node from being ready: after that it is behind nobody.
const leaderless = 10 * time.Second

// Handler serves, for probes and for people, and asks no other node for it beyond a read of its own replicas:
//
//	/livez   200, or 503 when the node has failed or was removed; never for a lost quorum
//	/readyz  200 when the node belongs to a cluster and its replicas have caught up; 503 with the reason else. It does not ask whether shards have owners
//	/status  Status, and Stats under "stats", as JSON
//
// A replica that has heard of no leader for 10 s does not keep the node from being ready, or processes that are started one after the other would wait for
// ever. The handler has no access control: serve it where only your own people and probes reach it.
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { probe(w, n.Healthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { probe(w, n.caughtUp(r.Context())) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.MarshalIndent(struct {
			Status
			Stats Stats `json:"stats"`
		}{n.Status(), n.Stats()}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n')) // the reader is gone if it fails
	})
	return mux
}

func probe(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// caughtUp is nil once the node belongs to a cluster and each replica here has caught up since it was opened.
func (n *Node) caughtUp(ctx context.Context) error {
	ctx, end, err := n.begin(ctx, false)
	if err != nil {
		return err
	}
	defer end()
	cl := n.cluster.Load()
	if cl == nil {
		return errors.New("the node belongs to no cluster yet")
	}
	ctx, cancel := context.WithTimeout(ctx, n.c.ElectionTimeout)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(cl.groups))
	for i, g := range cl.groups {
		if g.local != nil && g.local.freshAt.Load() == 0 {
			wg.Go(func() { errs[i] = g.local.caughtUp(ctx) }) // stops within an election timeout
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (l *local) caughtUp(ctx context.Context) error {
	if l.refresh(ctx) {
		return nil
	}
	if leader, _ := l.g.n.disk.host.Leader(l.g.id); leader == 0 && l.now()-l.since > leaderless {
		return nil
	}
	return fmt.Errorf("the replica of shard %d has not caught up", l.g.id)
}
