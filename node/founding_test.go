package node

import (
	"errors"
	iofs "io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/owner"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// founder is a node without a network, as far as founding's answers need one. Its directory is on fs.
func founder(t *testing.T, fs vfs.FS) *Node {
	t.Helper()
	c := validConfig()
	c.Bootstrap, c.Logger = 3, hclog.NewNullLogger()
	n := &Node{c: c.withDefaults(), env: &env.Env{FS: fs, Clock: env.NewVirtual(time.Now())}, log: c.Logger, founded: make(chan struct{})}
	n.life.init()
	close(n.life.opened)
	n.founding.n = n
	var err error
	if n.home, err = openHome(n.env, c.Dir, n.maxFormat()); err != nil {
		t.Fatalf("open directory: %v", err)
	}
	n.me = owner.ID{Node: n.home.id.ID, Incarnation: n.home.id.Incarnation}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// planFor is a plan of three nodes, n among them.
func planFor(n *Node) *wire.Plan {
	nodes := []string{n.ID(), uuid.NewString(), uuid.NewString()}
	slices.Sort(nodes)
	return newPlan(n.c, n.maxFormat(), nodes)
}

// afterCrash is what the directory says after the machine lost power at this instant.
func afterCrash(t *testing.T, fs *vfs.MemFS) *home {
	t.Helper()
	h := &home{fs: fs.CrashClone(vfs.CrashCloneCfg{}), dir: "/data"}
	if err := h.load(); err != nil {
		t.Fatalf("read the directory after a crash: %v", err)
	}
	return h
}

func ask(t *testing.T, n *Node, p *wire.Plan) *wire.PlanReply {
	t.Helper()
	r, err := n.founding.answer(&wire.PlanRequest{Plan: p}, false)
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	if r.GetNode() != n.ID() {
		t.Errorf("answer in the name of %q, want %q", r.GetNode(), n.ID())
	}
	return r
}

// A node stores one plan, refuses every other for ever, and says only what a crash at that instant would leave on its disk.
func TestFounding_Answer(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(t *testing.T, n *Node, p *wire.Plan) // p: the plan that is asked for then
		stored  bool
		founded bool
	}{
		"nothing stored": {before: func(*testing.T, *Node, *wire.Plan) {}, stored: true},
		"the same plan":  {before: func(t *testing.T, n *Node, p *wire.Plan) { ask(t, n, p) }, stored: true},
		"another plan":   {before: func(t *testing.T, n *Node, _ *wire.Plan) { ask(t, n, planFor(n)) }},
		"refused before, free now": {before: func(t *testing.T, n *Node, p *wire.Plan) {
			first := planFor(n)
			ask(t, n, first)
			ask(t, n, p)
			n.founding.drop(first)
		}},
		"dropped before": {before: func(t *testing.T, n *Node, p *wire.Plan) {
			ask(t, n, p)
			n.founding.drop(p)
		}},
		"forgotten before": {before: func(t *testing.T, n *Node, p *wire.Plan) {
			ask(t, n, p)
			if err := n.home.forgetPlan(); err != nil {
				t.Fatal(err)
			}
		}},
		"a cluster of another plan": {before: func(_ *testing.T, n *Node, _ *wire.Plan) { n.founding.adopt(planFor(n)) }, founded: true},
		"the cluster of the plan":   {before: func(_ *testing.T, n *Node, p *wire.Plan) { n.founding.adopt(p) }, stored: true, founded: true},
		"a plan without this node":  {before: func(_ *testing.T, n *Node, p *wire.Plan) { replaceNode(p, n.ID(), uuid.NewString()) }},
		"another number of shards":  {before: func(_ *testing.T, n *Node, _ *wire.Plan) { n.c.Shards = 3 }},
		"another goal of replicas":  {before: func(_ *testing.T, n *Node, _ *wire.Plan) { n.c.Replicas = 5 }},
		"another Bootstrap":         {before: func(_ *testing.T, n *Node, _ *wire.Plan) { n.c.Bootstrap = 5 }},
		"no Bootstrap":              {before: func(_ *testing.T, n *Node, _ *wire.Plan) { n.c.Bootstrap = 0 }},
		"a format that is too new":  {before: func(_ *testing.T, _ *Node, p *wire.Plan) { p.Format = 99 }},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			n := founder(t, fs)
			p := planFor(n)
			c.before(t, n, p)
			for range 2 { // asked again, it says the same
				r := ask(t, n, p)
				if r.GetStored() != c.stored || r.GetFounded() != c.founded {
					t.Errorf("stored = %v, founded = %v, want %v, %v", r.GetStored(), r.GetFounded(), c.stored, c.founded)
				}
				h := afterCrash(t, fs)
				if kept := h.plan.GetId() == p.GetId(); kept != c.stored {
					t.Errorf("after a crash the plan is stored: %v, want %v", kept, c.stored)
				}
				if kept := slices.Contains(h.id.Refused, p.GetId()) || h.id.Founded && !c.stored; kept == c.stored {
					t.Errorf("after a crash the plan is refused: %v, want %v", kept, !c.stored)
				}
			}
		})
	}
}

func replaceNode(p *wire.Plan, old, id string) {
	p.Nodes[slices.Index(p.Nodes, old)] = id
	for _, set := range p.GetSets() {
		for _, r := range set.GetReplicas() {
			if r.GetNode() == old {
				r.Node = id
			}
		}
	}
}

// A node that knows of a cluster stores no plan, and does not refuse it either: the answer is open. What it answered before stays.
func TestFounding_AnswerHeard(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := founder(t, fs)
	p, q := planFor(n), planFor(n)
	if r, err := n.founding.answer(&wire.PlanRequest{Plan: p}, true); err == nil {
		t.Errorf("got %v, want an error", r)
	}
	if h := afterCrash(t, fs); h.plan != nil || len(h.id.Refused) > 0 {
		t.Errorf("stored %v, refused %v", h.plan, h.id.Refused)
	}
	if !ask(t, n, p).GetStored() {
		t.Error("it is refused when the cluster is forgotten")
	}
	if r, err := n.founding.answer(&wire.PlanRequest{Plan: p}, true); err != nil || !r.GetStored() {
		t.Errorf("the stored plan: got %v, %v", r, err)
	}
	if r, err := n.founding.answer(&wire.PlanRequest{Plan: q}, true); err != nil || r.GetStored() || r.GetPlan().GetId() != p.GetId() {
		t.Errorf("another plan: got %v, %v, want a refusal with the stored one", r, err)
	}
}

// Whatever is asked, dropped and crashed in whatever order: a plan that was refused is never stored later, one that was stored stays so
// until it is dropped, and never are two stored at a time.
func TestFounding_AnswerAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		fs := vfs.NewCrashableMem()
		n := founder(t, fs)
		plans := []*wire.Plan{planFor(n), planFor(n), planFor(n)}
		said := map[string]bool{} // by plan: stored; absent: never asked
		for range 40 {
			p := plans[rng.IntN(len(plans))]
			switch rng.IntN(4) {
			case 0:
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				n = founder(t, fs)
			case 1:
				n.founding.drop(p)
				if said[p.GetId()] {
					said[p.GetId()] = false
				}
			default:
				stored := ask(t, n, p).GetStored()
				if before, asked := said[p.GetId()]; asked && stored != before {
					t.Fatalf("plan stored: %v, after the answer %v", stored, before)
				}
				said[p.GetId()] = stored
			}
			count := 0
			for _, stored := range said {
				if stored {
					count++
				}
			}
			if count > 1 {
				t.Fatalf("%d plans are stored at a time", count)
			}
		}
	}
}

// A node that cannot write does not promise: the answer is an error, the node fails with the disk's, and what it stored before counts.
func TestFounding_AnswerDiskFails(t *testing.T) {
	errDisk := errors.New("disk is broken")
	for name, op := range map[string]errorfs.OpKind{"create": errorfs.OpCreate, "write": errorfs.OpFileWrite, "sync": errorfs.OpFileSync, "rename": errorfs.OpRename} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			toggle := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
				if o.Kind == op {
					return errDisk
				}
				return nil
			})}
			n := founder(t, errorfs.Wrap(fs, toggle))
			p := planFor(n)
			toggle.On()
			if r, err := n.founding.answer(&wire.PlanRequest{Plan: p}, false); err == nil {
				t.Errorf("answer without a disk: got %v, want an error", r)
			}
			<-n.Done()
			if !errors.Is(n.Err(), errDisk) {
				t.Errorf("the node's error: got %v, want the disk's", n.Err())
			}
			if h := afterCrash(t, fs); h.plan != nil || n.home.plan != nil {
				t.Errorf("a plan is stored: on disk %v, in memory %v", h.plan, n.home.plan)
			}
		})
	}
}

// A directory that cannot be written is told by name, with what to do, and is not locked afterwards.
func TestOpenHome_NotWritable(t *testing.T) {
	for name, op := range map[string]errorfs.OpKind{"create": errorfs.OpCreate, "write": errorfs.OpFileWrite, "sync": errorfs.OpFileSync, "rename": errorfs.OpRename, "lock": errorfs.OpLock, "mkdir": errorfs.OpMkdirAll} {
		for _, cause := range []error{syscall.EROFS, syscall.ENOSPC} {
			fs := vfs.NewMem()
			toggle := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
				if o.Kind == op {
					return &iofs.PathError{Op: name, Path: o.Path, Err: cause}
				}
				return nil
			})}
			e := &env.Env{FS: errorfs.Wrap(fs, toggle), Clock: env.NewVirtual(time.Now())}
			toggle.On()
			_, err := openHome(e, "/data", 1)
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), `Config.Dir = "/data": make it`) || errors.Is(err, ErrDirLocked) {
				t.Errorf("%s: got %v, want %v with Config.Dir", name, err, cause)
			}
			toggle.Off()
			h, err := openHome(e, "/data", 1)
			if err != nil {
				t.Fatalf("%s: open when it is mended: %v", name, err)
			}
			if err := h.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A plan that Raft could not start, or panics on, is refused as unreadable, and changes nothing.
func TestFounding_AnswerBadPlan(t *testing.T) {
	n := founder(t, vfs.NewCrashableMem())
	before := n.home.id
	for name, change := range badPlans() {
		p := planFor(n)
		change(p)
		if r, err := n.founding.answer(&wire.PlanRequest{Plan: p}, false); err == nil {
			t.Errorf("%s: got %v, want an error", name, r)
		}
	}
	if _, err := n.founding.answer(&wire.PlanRequest{}, false); err == nil {
		t.Error("no plan: got nil, want an error")
	}
	if d := cmp.Diff(before, n.home.id); d != "" {
		t.Errorf("identity changed: %s", d)
	}
}

func badPlans() map[string]func(*wire.Plan) {
	return map[string]func(*wire.Plan){
		"no id":             func(p *wire.Plan) { p.Id = "" },
		"no cluster":        func(p *wire.Plan) { p.Cluster = "" },
		"no shards":         func(p *wire.Plan) { p.Shards, p.Sets = 0, p.Sets[:1] },
		"too many shards":   func(p *wire.Plan) { p.Shards = 1 << 31 },
		"a set too few":     func(p *wire.Plan) { p.Sets = p.Sets[1:] },
		"an empty set":      func(p *wire.Plan) { p.Sets[3].Replicas = nil },
		"replica 0":         func(p *wire.Plan) { p.Sets[3].Replicas[1].Id = 0 },
		"a replica twice":   func(p *wire.Plan) { p.Sets[3].Replicas[1].Id = p.Sets[3].Replicas[0].Id },
		"a node twice":      func(p *wire.Plan) { p.Sets[3].Replicas[1].Node = p.Sets[3].Replicas[0].Node },
		"an unknown node":   func(p *wire.Plan) { p.Sets[3].Replicas[1].Node = uuid.NewString() },
		"a node of no name": func(p *wire.Plan) { p.Sets[3].Replicas[1].Node = "" },
	}
}

// The way out of a plan that cannot complete drops it, durably refuses it, and leaves alone what it must not touch.
func TestForgetPlan(t *testing.T) {
	fs := vfs.NewCrashableMem()
	e := &env.Env{FS: fs, Clock: env.NewVirtual(time.Now())}
	if err := forgetPlan(e, "/data"); !errors.Is(err, ErrInvalid) {
		t.Errorf("no directory: got %v, want ErrInvalid", err)
	}
	if names, err := fs.List("/"); err != nil || len(names) > 0 {
		t.Errorf("no directory: it made %v, %v", names, err)
	}
	n := founder(t, fs)
	p := planFor(n)
	if err := forgetPlan(e, "/data"); !errors.Is(err, ErrDirLocked) {
		t.Errorf("running node: got %v, want ErrDirLocked", err)
	}
	ask(t, n, p)
	n.Close()
	if err := forgetPlan(e, "/data"); err != nil {
		t.Fatalf("forget: %v", err)
	}
	if h := afterCrash(t, fs); h.plan != nil || !slices.Contains(h.id.Refused, p.GetId()) {
		t.Errorf("after forgetting and a crash: plan %v, refused %v", h.plan, h.id.Refused)
	}
	if err := forgetPlan(e, "/data"); !errors.Is(err, ErrInvalid) {
		t.Errorf("no plan: got %v, want ErrInvalid", err)
	}
	n = founder(t, fs)
	if ask(t, n, p).GetStored() {
		t.Error("the forgotten plan is stored again")
	}
	n.founding.adopt(planFor(n))
	n.Close()
	err := forgetPlan(e, "/data")
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), n.home.plan.GetCluster()) {
		t.Errorf("founded cluster: got %v, want ErrInvalid with the cluster", err)
	}
	if h := afterCrash(t, fs); !h.id.Founded || !proto.Equal(h.plan, n.home.plan) {
		t.Errorf("founded cluster: it changed to %v", cmp.Diff(n.home.plan, h.plan, protocmp.Transform()))
	}
}

// Every plan that newPlan lays out can be started: sets are odd, on different founders, spread evenly.
func TestNewPlan(t *testing.T) {
	for _, c := range []struct{ founders, replicas, shards, copies int }{{1, 3, 0, 1}, {2, 1, 4, 1}, {3, 3, 16, 3}, {4, 3, 16, 3}, {4, 5, 8, 3}, {5, 5, 512, 5}, {7, 3, 16, 3}} {
		var nodes []string
		for range c.founders {
			nodes = append(nodes, uuid.NewString())
		}
		p := newPlan(Config{Replicas: c.replicas, Shards: c.shards}, 1, nodes)
		if err := checkPlan(p); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		first := map[string]int{}
		for _, set := range p.GetSets() {
			if got := len(set.GetReplicas()); got != c.copies {
				t.Errorf("%+v: got %d replicas, want %d", c, got, c.copies)
			}
			first[set.GetReplicas()[0].GetNode()]++
		}
		lo, hi := len(p.GetSets())/c.founders, (len(p.GetSets())+c.founders-1)/c.founders
		for _, id := range nodes {
			if first[id] < lo || first[id] > hi {
				t.Errorf("%+v: a node is first in %d sets, want %d to %d", c, first[id], lo, hi)
			}
		}
	}
}
