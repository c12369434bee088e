package node_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node"
)

// Every exported error says whether a write that failed with it may have been done: a new one has to be classified (case 68).
func TestCase068_EveryErrorIsClassified(t *testing.T) {
	const (
		notDone = "not done"
		unknown = "may be done"
		never   = "no error of a write"
	)
	classes := map[string]string{
		"ErrClosed": notDone, "ErrLost": notDone, "ErrHandedOver": never, "ErrUnknown": unknown, "ErrNotHeld": notDone, "ErrFenced": notDone, "ErrHeld": notDone,
		"ErrAlreadyDone": notDone, "ErrCompacted": never, "ErrConflict": notDone, "ErrNotFound": notDone, "ErrBadValue": notDone, "ErrTooLarge": notDone,
		"ErrInvalid": notDone, "ErrNoQuorum": notDone, "ErrForeignCluster": notDone, "ErrDirLocked": never, "ErrRemoved": never,
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, name := range v.Names {
			if name.IsExported() {
				found++
				if classes[name.Name] == "" {
					t.Errorf("%s is not classified", name.Name)
				}
			}
		}
		return true
	})
	if found != len(classes) {
		t.Errorf("errors.go has %d exported errors, %d are classified", found, len(classes))
	}
}

// A write that fails at any stage says what is so: cut off, with no connection left to send it on, it is not done; proposed, with an outcome that nobody hears, it may be done; and done,
// with an answer that is lost, it is asked for again, is done once, and succeeds (case 68).
func TestCase068_OutcomeAtEachStage(t *testing.T) {
	writes := map[string]func(context.Context, *node.Shard, string) error{
		"put": func(ctx context.Context, s *node.Shard, key string) error {
			_, err := s.Put(ctx, key, []byte("1"), nil)
			return err
		},
		"swap": func(ctx context.Context, s *node.Shard, key string) error {
			_, err := s.CompareAndSwap(ctx, key, 0, []byte("1"), nil)
			return err
		},
		"txn": func(ctx context.Context, s *node.Shard, key string) error {
			_, err := s.Txn(ctx, node.Txn{If: []node.Cond{node.KeyAbsent(key)}, Then: []node.Op{node.PutOp(key, []byte("1"), nil)}})
			return err
		},
		"add": func(ctx context.Context, s *node.Shard, key string) error { _, err := s.Add(ctx, key, 1); return err },
		"update": func(ctx context.Context, s *node.Shard, key string) error {
			_, err := s.Update(ctx, key, func(old []byte) ([]byte, error) { return append(old, '1'), nil })
			return err
		},
	}
	inHoles(t, nil, func(t *testing.T, h *holes) {
		owner := h.AwaitOwner(1)
		i := others(h.Cluster, owner)[0]
		s := h.Node(i).ShardAt(1)
		version := func(key string) int64 {
			t.Helper()
			r, err := s.Get(within(t, 30*time.Second), key)
			if err != nil && !errors.Is(err, node.ErrNotFound) {
				t.Fatal(err)
			}
			return r.Version
		}
		mustPut(t, s, "first", "") // the session is there
		for name, write := range writes {
			h.Isolate(i)
			time.Sleep(20 * time.Second) // its connections are known to be broken: what is sent on one before may arrive later
			err := write(within(t, time.Second), s, name+"/cut")
			wantErr(t, name+" that is cut off", err, node.ErrNoQuorum)
			wantErr(t, name+" that is cut off", err, context.DeadlineExceeded)
			h.Heal()
			time.Sleep(30 * time.Second)
			if n := version(name + "/cut"); n != 0 {
				t.Errorf("%s that failed as not done: version %d", name, n)
			}
			owner = h.AwaitOwner(1)

			lost := 0
			h.gates[owner].proposals(func(e *fsmpb.Entry, next func() error) error {
				err := next()
				if writesTo(e, name+"/answer") && lost == 0 {
					lost++
					return fmt.Errorf("the answer is lost: %w", context.DeadlineExceeded)
				}
				return err
			})
			if err := write(within(t, 20*time.Second), s, name+"/answer"); err != nil || lost != 1 {
				t.Errorf("%s whose answer is lost: got %v, %d lost", name, err, lost)
			}
			if n := version(name + "/answer"); n != 1 {
				t.Errorf("%s whose answer is lost: version %d, want 1", name, n)
			}

			stuck := newStopped()
			h.gates[owner].proposals(func(e *fsmpb.Entry, next func() error) error {
				if writesTo(e, name+"/stuck") {
					stuck.hold(e)
				}
				return next()
			})
			err = write(within(t, time.Second), s, name+"/stuck")
			wantErr(t, name+" that is proposed and not heard of", err, node.ErrUnknown)
			h.gates[owner].proposals(nil)
			stuck.release()
			time.Sleep(30 * time.Second)
			if n := version(name + "/stuck"); n > 1 {
				t.Errorf("%s of unknown outcome: version %d", name, n)
			}
			h.AwaitOwner(1)
		}
	})
}

// writesTo says whether an entry changes the key.
func writesTo(e *fsmpb.Entry, key string) bool {
	for _, op := range e.GetBatch().GetOps() {
		switch k := op.Kind.(type) {
		case *fsmpb.Op_Put:
			if string(k.Put.Key) == key {
				return true
			}
		case *fsmpb.Op_CompareAndSwap:
			if string(k.CompareAndSwap.Key) == key {
				return true
			}
		case *fsmpb.Op_Add:
			if string(k.Add.Key) == key {
				return true
			}
		case *fsmpb.Op_Txn:
			if len(k.Txn.Then) > 0 && string(k.Txn.Then[0].GetPut().GetKey()) == key {
				return true
			}
		}
	}
	return false
}

// A shard's revision only rises, also in listings of a prefix whose newest record went, after a compaction, at another owner, and when all nodes have been
// restarted; a watch that goes on from it misses nothing (case 52).
func TestCase052_RevisionsOnlyRise(t *testing.T) {
	inHoles(t, shortHistory, func(t *testing.T, h *holes) {
		s := h.Node(others(h.Cluster, h.AwaitOwner(1))[0]).ShardAt(1)
		last := node.Revision(0)
		rises := func(what string) {
			t.Helper()
			l, err := s.List(within(t, time.Minute), "a/", nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if l.Revision < last {
				t.Errorf("%s: revision %d after %d", what, l.Revision, last)
			}
			last = l.Revision
		}
		mustPut(t, s, "a/1", "")
		m := h.Mirror(s, "a/", nil)
		time.Sleep(time.Second)
		last = mustPut(t, s, "a/2", "")
		rises("after a put")
		gone, err := s.Delete(t.Context(), "a/2")
		if err != nil || gone <= last {
			t.Errorf("delete: revision %d after %d, %v", gone, last, err)
		}
		rises("after the newest went")
		if last != gone {
			t.Errorf("a listing without the newest record shows revision %d, want %d", last, gone)
		}
		for i := range 300 {
			last = mustPut(t, s, "b", fmt.Sprint(i))
		}
		time.Sleep(30 * time.Second) // the history is trimmed
		rises("after a compaction")
		owner := h.AwaitOwner(1)
		h.Kill(owner)
		rises("at another owner")
		h.Restart(owner)
		h.AwaitReady()
		if n, _ := m.Events(); n != 2 || m.Err() != nil {
			t.Errorf("a watch was told %d events, want 2; %v", n, m.Err())
		}
		m.Stop()
		for i := range 3 {
			h.Kill(i)
		}
		for i := range 3 {
			h.Restart(i)
		}
		h.AwaitReady()
		s = h.Node(0).ShardAt(1)
		rises("after all were restarted")
		m = h.Mirror(s, "a/", &node.WatchOptions{From: last + 1})
		mustPut(t, s, "a/3", "")
		time.Sleep(time.Second)
		if n, _ := m.Events(); n != 1 {
			t.Errorf("a watch from there was told %d events, want 1; %v", n, m.Err())
		}
	})
}
