package node_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

func get(n *node.Node, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func wantStatus(t *testing.T, what string, n *node.Node, path string, want int) {
	t.Helper()
	began := time.Now()
	w := get(n, path)
	if w.Code != want {
		t.Errorf("%s: %s: got %d %q, want %d", what, path, w.Code, strings.TrimSpace(w.Body.String()), want)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%s: %s took %v", what, path, took)
	}
}

// Probes tell a node that is of no use from one that has to be left alone: a lost quorum is no reason to kill a process, a node that belongs to no cluster
// or lags behind gets no traffic, and one of several that start one after the other becomes ready although it has no quorum yet.
func TestNode_Handler(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		n := c.Node(0)
		for _, path := range []string{"/livez", "/readyz", "/status"} {
			wantStatus(t, "healthy", n, path, http.StatusOK)
		}
		var status struct {
			ID    string `json:"id"`
			State string `json:"state"`
			Stats struct {
				Entries uint64 `json:"entries"`
			} `json:"stats"`
			Shards []struct {
				Shard int `json:"shard"`
			} `json:"shards"`
		}
		if err := json.Unmarshal(get(n, "/status").Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if status.ID != n.ID() || status.State != "running" || status.Stats.Entries == 0 || len(status.Shards) != 2 {
			t.Errorf("status: got %+v", status)
		}
		if w := httptest.NewRecorder(); true {
			n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/livez", nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("POST: got %d", w.Code)
			}
		}
		c.Kill(1)
		c.Kill(2)
		time.Sleep(30 * time.Second)
		for _, path := range []string{"/livez", "/readyz", "/status"} {
			wantStatus(t, "without a majority", n, path, http.StatusOK)
		}
		c.Kill(0)
		c.Restart(0) // the first of three that are started one after the other
		wantStatus(t, "restarted alone", c.Node(0), "/livez", http.StatusOK)
		wantStatus(t, "restarted alone", c.Node(0), "/readyz", http.StatusServiceUnavailable)
		time.Sleep(15 * time.Second)
		wantStatus(t, "alone for a while", c.Node(0), "/readyz", http.StatusOK)
		c.Restart(1)
		c.Restart(2)
		c.AwaitReady()
		for i := range 3 {
			wantStatus(t, "all are back", c.Node(i), "/readyz", http.StatusOK)
		}
		closed := c.Node(0)
		c.Close(0)
		wantStatus(t, "closed", closed, "/readyz", http.StatusServiceUnavailable)
	})
}

// A node that belongs to no cluster is alive and not ready; one without replicas is ready once it has joined.
func TestNode_Handler_Unready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodetest.New(t, 3, &nodetest.Options{Bootstrap: 3})
		c.AwaitReady()
		lone := c.Add(func(cfg *node.Config) { cfg.Join = []string{"127.0.0.99:7400"} })
		c.Isolate(lone)
		time.Sleep(15 * time.Second)
		wantStatus(t, "of no cluster", c.Node(lone), "/livez", http.StatusOK)
		wantStatus(t, "of no cluster", c.Node(lone), "/readyz", http.StatusServiceUnavailable)
		c.Heal()
		remote := c.Add(nil)
		c.Await("a node without replicas to be ready", func() bool { return get(c.Node(remote), "/readyz").Code == http.StatusOK })
	})
}
