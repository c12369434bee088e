package registry

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

const (
	nodeA = "11111111-1111-4111-8111-111111111111"
	nodeB = "22222222-2222-4222-8222-222222222222"
)

// isUUID is enough of a validator to tell the constants above from other strings.
func isUUID(s string) bool { return len(s) == 36 && strings.Count(s, "-") == 4 }

func open(t *testing.T, streams uint64) (*Factory, *Registry, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	f := NewFactory()
	f.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
	r, err := f.Create("", streams, isUUID)
	if err != nil {
		t.Fatal(err)
	}
	return f, r.(*Registry), &log
}

func resolves(t *testing.T, r *Registry, shard, replica uint64, node, key string) {
	t.Helper()
	gotNode, gotKey, err := r.Resolve(shard, replica)
	if node == "" {
		if !errors.Is(err, ErrUnknownReplica) {
			t.Errorf("shard %d replica %d: got %q, %v, want ErrUnknownReplica", shard, replica, gotNode, err)
		}
		return
	}
	if err != nil || gotNode != node || gotKey != key {
		t.Errorf("shard %d replica %d: got %q, %q, %v, want %q, %q", shard, replica, gotNode, gotKey, err, node, key)
	}
}

// A replica resolves to its node's UUID, and the shards are spread over the connections.
func TestRegistry_Resolve(t *testing.T) {
	_, r, _ := open(t, 4)
	r.Add(6, 1, nodeA)
	r.Add(7, 1, nodeA)
	resolves(t, r, 6, 1, nodeA, nodeA+"-2")
	resolves(t, r, 7, 1, nodeA, nodeA+"-3")
	resolves(t, r, 7, 2, "", "")

	_, one, _ := open(t, 1)
	one.Add(6, 1, nodeA)
	resolves(t, one, 6, 1, nodeA, nodeA)
}

// A message can teach a replica that knows nothing yet, but can never re-point one that is known; a log corrects a message
// (case family "address used as identity", case 110).
func TestRegistry_Learn(t *testing.T) {
	f, r, log := open(t, 1)
	f.Learn(1, 1, nodeA)
	resolves(t, r, 1, 1, nodeA, nodeA)
	f.Learn(1, 1, nodeB)
	resolves(t, r, 1, 1, nodeA, nodeA)

	r.Add(1, 1, nodeB)
	resolves(t, r, 1, 1, nodeB, nodeB)
	if !strings.Contains(log.String(), "does not run it") {
		t.Errorf("the corrected message left no line in the log: %q", log)
	}
	f.Learn(1, 1, nodeA)
	resolves(t, r, 1, 1, nodeB, nodeB)
}

// A second node for a replica is refused and said loudly, and is no panic.
func TestRegistry_Add_Conflict(t *testing.T) {
	_, r, log := open(t, 1)
	r.Add(1, 1, nodeA)
	r.Add(1, 1, nodeA)
	if log.Len() != 0 {
		t.Errorf("saying the same twice logged %q", log)
	}
	r.Add(1, 1, nodeB)
	resolves(t, r, 1, 1, nodeA, nodeA)
	if !strings.Contains(log.String(), "two nodes for one replica") {
		t.Errorf("got log %q, want the conflict in it", log)
	}
}

// What is no UUID is kept out, from a log as from a message, without a panic.
func TestRegistry_Add_NotUUID(t *testing.T) {
	f, r, _ := open(t, 1)
	r.Add(1, 1, "10.0.0.1:7400")
	f.Learn(1, 2, "10.0.0.1:7400")
	resolves(t, r, 1, 1, "", "")
	resolves(t, r, 1, 2, "", "")
}

// Removing forgets exactly what was named, and frees the room of what was learned.
func TestRegistry_Remove(t *testing.T) {
	f, r, _ := open(t, 1)
	r.Add(1, 1, nodeA)
	f.Learn(1, 2, nodeB)
	f.Learn(2, 1, nodeA)
	r.Remove(1, 1)
	resolves(t, r, 1, 1, "", "")
	resolves(t, r, 1, 2, nodeB, nodeB)
	r.RemoveShard(1)
	resolves(t, r, 1, 2, "", "")
	resolves(t, r, 2, 1, nodeA, nodeA)
	if r.learned != 1 {
		t.Errorf("got %d learned entries, want 1", r.learned)
	}
}

// Peers cannot make us remember without bound (case family "unbounded").
func TestRegistry_Learn_Bounded(t *testing.T) {
	f, r, _ := open(t, 1)
	for i := range uint64(maxLearned + 10) {
		f.Learn(1, i+1, nodeA)
	}
	if got := len(r.nodes); got != maxLearned {
		t.Errorf("got %d entries, want %d", got, maxLearned)
	}
	r.Add(2, 1, nodeB)
	resolves(t, r, 2, 1, nodeB, nodeB)
}

// Learning before there is a registry is nothing, and all of it may run at once.
func TestFactory_Learn_Concurrent(t *testing.T) {
	f := NewFactory()
	f.Learn(1, 1, nodeA)
	var wg sync.WaitGroup
	reg, err := f.Create("", 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	for g := range uint64(4) {
		wg.Go(func() { // stops when its loop is through
			for i := range uint64(500) {
				f.Learn(i, g, nodeA)
				reg.Add(i, 1, nodeA)
				_, _, _ = reg.Resolve(i, g)
				reg.Remove(i, 2)
			}
		})
	}
	wg.Wait()
	resolves(t, reg.(*Registry), 499, 1, nodeA, nodeA+"-3")
}
