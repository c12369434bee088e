package node

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/membership"
	"github.com/oarlock/oarlock/node/internal/wire"
	"github.com/oarlock/oarlock/transport/memnet"
	"github.com/oarlock/oarlock/transport/rpc"
)

// A memo keeps what nodes log.
type memo struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (m *memo) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b.Write(b)
}

func (m *memo) has(part string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Contains(m.b.String(), part)
}

func (m *memo) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: m})
}

// pair opens two clusters of three on one network, the second after the first was given seeds that lead to it.
func pair(t *testing.T, net *memnet.Network, log *memo) (x, y []*Node) {
	t.Helper()
	open := func(from int) (nodes []*Node) {
		for i := from; i < from+3; i++ {
			nodes = append(nodes, newMachine(t, net).open(t, memAddr(i), func(c *Config) {
				c.Bootstrap, c.Logger, c.Join = 3, log.logger(), []string{memAddr(from), memAddr(from + 1)}
			}))
		}
		awaitReady(t, nodes...)
		return nodes
	}
	return open(0), open(3)
}

// Two clusters whose gossip meets stay two: every node names the foreign ones in its status and log, no write or read reaches the other
// cluster, and a request from there is refused as foreign (case 79).
func TestCase079_ForeignCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New(memnet.Options{Delay: time.Millisecond})
		var log memo
		x, y := pair(t, net, &log)
		put := func(n *Node, key, value string) {
			if _, err := n.ShardAt(1).Put(t.Context(), key, []byte(value), nil); err != nil {
				t.Errorf("put at %s: %v", n.Addr(), err)
			}
		}
		put(x[0], "who", "x")
		put(y[0], "who", "y")
		// A node of x comes back with a seed of y: its address was once one of x's.
		m := newMachine(t, net)
		stray := m.open(t, memAddr(6), func(c *Config) { c.Join, c.Logger = []string{memAddr(0)}, log.logger() })
		awaitReady(t, stray)
		mustClose(t, stray)
		stray = m.open(t, memAddr(6), func(c *Config) { c.Join, c.Logger = []string{memAddr(3)}, log.logger() })
		time.Sleep(time.Minute)

		for _, side := range []struct{ ours, theirs []*Node }{{append(x, stray), y}, {y, append(x, stray)}} {
			for _, n := range side.ours {
				s := n.Status()
				if s.Cluster != side.ours[0].Status().Cluster {
					t.Errorf("%s: is of cluster %s now", n.Addr(), s.Cluster)
				}
				if len(s.Foreign) != len(side.theirs) {
					t.Errorf("%s: foreign: got %v, want %d nodes", n.Addr(), s.Foreign, len(side.theirs))
				}
				if !strings.Contains(strings.Join(s.Foreign, " "), side.theirs[0].Addr()) {
					t.Errorf("%s: foreign: got %v, want %s in it", n.Addr(), s.Foreign, side.theirs[0].Addr())
				}
			}
		}
		if !log.has(ErrForeignCluster.Error()) {
			t.Error("no foreign cluster was logged")
		}
		for want, nodes := range map[string][]*Node{"x": append(x, stray), "y": y} {
			for _, n := range nodes {
				r, err := n.ShardAt(1).Get(t.Context(), "who")
				if err != nil || string(r.Value) != want {
					t.Errorf("get at %s: got %q, %v, want %q", n.Addr(), r.Value, err, want)
				}
			}
		}
		wantForeign(t, x[0], y[0])
	})
}

// wantForeign makes a ask b for each thing that is a cluster's own, and wants to be refused.
func wantForeign(t *testing.T, a, b *Node) {
	t.Helper()
	h := a.header()
	ask := map[string]*wire.OwnerRequest{
		"op":       {Ask: &wire.OwnerRequest_Op{Op: &fsmpb.Op{Kind: &fsmpb.Op_Touch{Touch: &fsmpb.Touch{}}}}},
		"await":    {Ask: &wire.OwnerRequest_Await{Await: &wire.Await{}}},
		"read":     {Ask: &wire.OwnerRequest_Read{Read: &wire.Read{Key: []byte("who")}}},
		"identify": {Ask: &wire.OwnerRequest_Identify{Identify: &wire.Identify{}}},
		"observe":  {Ask: &wire.OwnerRequest_Observe{Observe: &wire.Observe{}}},
		"listen":   {Ask: &wire.OwnerRequest_Listen{Listen: &wire.Listen{}}},
		"records":  {Ask: &wire.OwnerRequest_ListRecords{ListRecords: &wire.ListRecords{}}},
		"former":   {Ask: &wire.OwnerRequest_Former{Former: &wire.Former{Key: []byte("who")}}},
		"locks":    {Ask: &wire.OwnerRequest_ListLocks{ListLocks: &wire.ListLocks{}}},
	}
	refused := func(what string, method uint16, q proto.Message) {
		err := a.askAddr(t.Context(), b.Addr(), method, q, &wire.OwnerReply{})
		var remote *rpc.RemoteError
		if !errors.As(err, &remote) || remote.Code != wire.CodeForeign {
			t.Errorf("%s of the other cluster: got %v, want a refusal as foreign", what, err)
		}
	}
	for what, q := range ask {
		q.Header, q.Shard = h, 1
		refused(what, wire.MethodOwner, q)
	}
	refused("changes", wire.MethodChanges, &wire.ChangesRequest{Header: h, Shard: 1})
	refused("follow", wire.MethodFollow, &wire.FollowRequest{Header: h, Shard: 1})
	refused("renew", wire.MethodRenew, &wire.RenewRequest{Header: h, Sessions: []*wire.SessionRef{{Shard: 1, Session: 1}}})
}

// rumour starts a member of a cluster that gossips and answers nothing else. stop ends it, with a farewell or without.
func rumour(t *testing.T, net *memnet.Network, addr string) (stop func(farewell bool)) {
	t.Helper()
	e, err := net.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	known, err := membership.Open(membership.Config{
		Self:      membership.Record{ID: uuid.NewString(), Addr: addr, Incarnation: 1, Nonce: 1, Cluster: uuid.NewString(), MinVersion: 1, MaxVersion: 1},
		Transport: e,
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(farewell bool) {
		end := known.Close
		if farewell {
			end = func() error { return known.Leave(t.Context()) }
		}
		if err := errors.Join(end(), e.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Nodes that heard of a cluster found none, also when enough carry Bootstrap, the cluster cannot be reached, and its only node has failed
// since; they say why. A node that started later, and does not know, founds none with them. When all are restarted they found
// (cases 83 and 114).
func TestFounding_HeardOfCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New(memnet.Options{Delay: time.Millisecond})
		stop := rumour(t, net, memAddr(9))
		var log memo
		machines := []*machine{newMachine(t, net), newMachine(t, net), newMachine(t, net)}
		var nodes []*Node
		open := func(i int) {
			nodes = append(nodes, machines[i].open(t, memAddr(i), func(c *Config) {
				c.Bootstrap, c.Logger, c.Join = 3, log.logger(), []string{memAddr(9), memAddr(0), memAddr(1)}
			}))
		}
		wantNone := func(when string) {
			t.Helper()
			for _, n := range nodes {
				if s := n.Status(); s.Cluster != "" {
					t.Errorf("%s: %s founded %q", when, n.Addr(), s.Cluster)
				}
			}
		}
		open(0)
		open(1)
		time.Sleep(30 * time.Second)
		if !log.has("knows of a cluster and cannot reach it") {
			t.Error("the cluster that cannot be reached was not logged")
		}
		stop(false)
		time.Sleep(30 * time.Second)
		if !log.has("has heard of a cluster that is gone") {
			t.Error("the cluster that is gone was not logged")
		}
		for range 8 { // one of the processes is likely to be the one that would propose
			open(2)
			time.Sleep(10 * time.Second)
			wantNone("one does not know")
			mustClose(t, nodes[2])
			nodes = nodes[:2]
			machines[2] = newMachine(t, net)
			time.Sleep(10 * time.Second)
		}
		mustClose(t, nodes[0])
		mustClose(t, nodes[1])
		nodes = nil
		time.Sleep(20 * time.Second)
		for i := range machines {
			open(i)
		}
		awaitReady(t, nodes...)
	})
}

// Nodes that know of a cluster whose last node left found another after an hour, and not before, with a node that never knew it.
func TestFounding_ForgetsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New(memnet.Options{Delay: time.Millisecond})
		stop := rumour(t, net, memAddr(9))
		var nodes []*Node
		open := func(i int) {
			nodes = append(nodes, newMachine(t, net).open(t, memAddr(i), func(c *Config) { c.Bootstrap, c.Join = 3, []string{memAddr(9), memAddr(0)} }))
		}
		open(0)
		open(1)
		time.Sleep(10 * time.Second)
		stop(true)
		time.Sleep(57 * time.Minute)
		open(2)
		time.Sleep(2 * time.Minute)
		for _, n := range nodes {
			if s := n.Status(); s.Cluster != "" {
				t.Errorf("%s founded %s while it was known", n.Addr(), s.Cluster)
			}
		}
		time.Sleep(2 * time.Minute)
		awaitReady(t, nodes...)
	})
}

// A plan whose member was lost before it answered is shown as pending and completes nothing; after ForgetPlan on those that remain they
// found with a new node.
func TestForgetPlan_WayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New(memnet.Options{Delay: time.Millisecond})
		machines := []*machine{newMachine(t, net), newMachine(t, net), newMachine(t, net)}
		change := func(c *Config) { c.Bootstrap, c.Join = 3, []string{memAddr(0), memAddr(1)} }
		nodes := []*Node{machines[0].open(t, memAddr(0), change), machines[1].open(t, memAddr(1), change)}
		ids := []string{nodes[0].ID(), nodes[1].ID(), uuid.NewString()}
		plan := newPlan(nodes[0].c, nodes[0].maxFormat(), ids)
		if !ask(t, nodes[0], plan).GetStored() {
			t.Fatal("the plan was refused")
		}
		time.Sleep(time.Minute)
		for _, n := range nodes { // the one that has the plan gave it to the other
			if d := cmp.Diff(ids, n.Status().Pending); d != "" || n.Status().Cluster != "" {
				t.Errorf("%s: cluster %q, pending %s", n.Addr(), n.Status().Cluster, d)
			}
		}
		ready, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := nodes[0].Ready(ready); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("ready: got %v, want ErrNoQuorum", err)
		}
		for i, n := range nodes {
			mustClose(t, n)
			if err := forgetPlan(machines[i].env(), "/data"); err != nil {
				t.Fatalf("forget: %v", err)
			}
		}
		nodes = nil
		for i, m := range machines {
			nodes = append(nodes, m.open(t, memAddr(i), change))
		}
		awaitReady(t, nodes...)
		if nodes[0].ID() != ids[0] || nodes[0].Status().Cluster == plan.GetCluster() {
			t.Errorf("node %s founded %s, want %s and not the forgotten plan", nodes[0].ID(), nodes[0].Status().Cluster, ids[0])
		}
	})
}
