package node_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

type limits struct{ Rate int }

func validLimits(l limits) error {
	if l.Rate < 0 {
		return fmt.Errorf("rate %d is negative", l.Rate)
	}
	return nil
}

// Values are encoded, decoded and validated on the way in and out; a bad one is neither written nor taken for a good one.
func TestTyped(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := within(t, time.Minute)
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		l := node.Typed[limits]{Shard: s, Validate: validLimits}
		_, _, err := l.Get(ctx, "l")
		wantErr(t, "no record", err, node.ErrNotFound)
		rev, err := l.Put(ctx, "l", limits{5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Put(ctx, "l", limits{-1}, nil)
		wantErr(t, "a put that is not valid", err, node.ErrBadValue)
		wantErr(t, "a put that is not valid", err, node.ErrInvalid)
		if v, r, err := l.Get(ctx, "l"); err != nil || v.Rate != 5 || r.Mod != rev {
			t.Errorf("got %+v at %d, %v, want 5 at %d", v, r.Mod, err, rev)
		}
		_, err = l.CompareAndSwap(ctx, "l", rev-1, limits{6}, nil)
		wantErr(t, "a swap at another revision", err, node.ErrConflict)
		_, err = l.Update(ctx, "l", func(old limits, found bool) (limits, error) {
			if !found || old.Rate != 5 {
				t.Errorf("update got %+v, %v", old, found)
			}
			return limits{old.Rate + 1}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := errors.New("no")
		_, err = l.Update(ctx, "new", func(_ limits, found bool) (limits, error) {
			if found {
				t.Error("a key without a record was found")
			}
			return limits{}, stop
		})
		wantErr(t, "an update that gives up", err, stop)
		for _, bad := range []string{"{", `{"Rate":-3}`, ""} {
			mustPut(t, s, "l", bad)
			v, r, err := l.Get(ctx, "l")
			wantErr(t, fmt.Sprintf("a value of %q", bad), err, node.ErrBadValue)
			if v.Rate != 0 || string(r.Value) != bad {
				t.Errorf("a bad value: got %+v, record %q", v, r.Value)
			}
			_, err = l.Update(ctx, "l", func(limits, bool) (limits, error) { return limits{1}, nil })
			wantErr(t, "an update of a bad value", err, node.ErrBadValue)
		}
		text := node.Typed[int]{
			Shard:  s,
			Encode: func(n int) ([]byte, error) { return []byte(strconv.Itoa(n)), nil },
			Decode: func(b []byte) (int, error) { return strconv.Atoi(string(b)) },
		}
		if _, err := s.Add(ctx, "n", 41); err != nil {
			t.Fatal(err)
		}
		if _, err := text.Update(ctx, "n", func(n int, _ bool) (int, error) { return n + 1, nil }); err != nil {
			t.Fatal(err)
		}
		if n, _, err := text.Get(ctx, "n"); err != nil || n != 42 {
			t.Errorf("another codec: got %d, %v, want 42", n, err)
		}
	})
}

// A Live value follows its record on every kind of node, keeps the last good one while the record is bad, falls back to the initial one when it is
// deleted, hears nothing of keys that only begin alike, and ends with its ctx, with an error that says so.
func TestTyped_Live(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		remote := c.Add(nil)
		c.AwaitReady()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := c.Node(0).ShardAt(1)
		mustPut(t, s, "l", `{"Rate":1}`)
		mustPut(t, s, "l2", `{"Rate":99}`)
		for i := range c.Len() {
			live, err := node.Typed[limits]{Shard: c.Node(i).ShardAt(1), Validate: validLimits}.Live(ctx, "l", limits{-7})
			if err != nil {
				t.Fatalf("node %d (remote %d): %v", i, remote, err)
			}
			want := func(what string, rate int, bad bool) {
				t.Helper()
				time.Sleep(2 * time.Second)
				if v, err := live.Load(), live.Err(); v.Rate != rate || errors.Is(err, node.ErrBadValue) != bad || !bad && err != nil {
					t.Errorf("node %d: %s: got %+v, %v, want %d, bad %v", i, what, v, err, rate, bad)
				}
			}
			want("at first", 1, false)
			changed := live.Changed()
			rev := mustPut(t, s, "l", `{"Rate":2}`)
			<-changed
			want("after a put", 2, false)
			mustPut(t, s, "l", "nonsense")
			want("after a bad put", 2, true)
			if live.Revision() != rev {
				t.Errorf("node %d: the last good value is of revision %d, want %d", i, live.Revision(), rev)
			}
			mustPut(t, s, "l2", "nonsense")
			want("after a put of another key", 2, true)
			if _, err := s.Delete(ctx, "l"); err != nil {
				t.Fatal(err)
			}
			want("after a delete", -7, false)
			mustPut(t, s, "l", `{"Rate":1}`)
			want("after a new put", 1, false)
			if i == 0 {
				short, stop := context.WithCancel(ctx)
				ended, err := node.Typed[limits]{Shard: s}.Live(short, "l", limits{})
				if err != nil {
					t.Fatal(err)
				}
				stop()
				time.Sleep(time.Second)
				wantErr(t, "after its ctx ended", ended.Err(), context.Canceled)
				if v := ended.Load(); v.Rate != 1 {
					t.Errorf("after its ctx ended: got %+v, want the last value", v)
				}
			}
		}
	})
}
