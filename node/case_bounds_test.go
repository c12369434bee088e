package node_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// proposals are the entries that the nodes have proposed until now.
func proposals(c *nodetest.Cluster) (n uint64) {
	synctest.Wait()
	for _, x := range c.Nodes() {
		n += x.Stats().Proposals
	}
	return n
}

// wantRefused fails unless err is want and says what is allowed, in a message of sane length.
func wantRefused(t *testing.T, what string, err, want error, bounds string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), bounds) || len(err.Error()) > 8<<10 {
		t.Errorf("%s: got %.300v, want %v with %q", what, err, want, bounds)
	}
}

// wantNothingAsked runs f and fails if it took time or anything was proposed.
func wantNothingAsked(t *testing.T, c *nodetest.Cluster, f func()) {
	t.Helper()
	before, began := proposals(c), time.Now()
	f()
	if took := time.Since(began); took != 0 {
		t.Errorf("what is refused took %v, want nobody asked", took)
	}
	if now := proposals(c); now != before {
		t.Errorf("%d entries were proposed for what is refused", now-before)
	}
}

// acquirers are the calls that take LockOptions.
func acquirers() map[string]func(context.Context, *node.Shard, *node.LockOptions) (held, error) {
	lock := func(f func(*node.Shard, context.Context, string, *node.LockOptions) (*node.Lock, error)) func(context.Context, *node.Shard, *node.LockOptions) (held, error) {
		return func(ctx context.Context, s *node.Shard, o *node.LockOptions) (held, error) {
			return heldLock(f(s, ctx, "x", o))
		}
	}
	return map[string]func(context.Context, *node.Shard, *node.LockOptions) (held, error){
		"Lock": lock((*node.Shard).Lock), "TryLock": lock((*node.Shard).TryLock), "RLock": lock((*node.Shard).RLock),
		"LockAll": func(ctx context.Context, s *node.Shard, o *node.LockOptions) (held, error) {
			return heldLock(s.LockAll(ctx, []string{"x", "y"}, o))
		},
		"Semaphore": func(ctx context.Context, s *node.Shard, o *node.LockOptions) (held, error) {
			p, err := s.Semaphore(ctx, "x", 1, o)
			if err != nil {
				return held{}, err
			}
			return held{Hold: p, release: p.Release}, nil
		},
	}
}

// Options that are out of their bounds are refused by every call that takes them, with an error that tells the bounds, before anybody is asked; at a
// bound they are taken as given: cases 66 and 159.
func TestLockOptions_Bounds(t *testing.T) {
	const maxHold, maxGrace, maxValue = 366 * 24 * time.Hour, 24 * time.Hour, 64 << 10
	refused := map[string]struct {
		o      node.LockOptions
		want   error
		bounds string
	}{}
	refuse := func(field, bounds string, set func(*node.LockOptions, time.Duration), ds ...time.Duration) {
		for _, d := range append(ds, math.MinInt64, -1) {
			var o node.LockOptions
			set(&o, d)
			refused[fmt.Sprintf("%s of %d", field, d)] = struct {
				o      node.LockOptions
				want   error
				bounds string
			}{o, node.ErrInvalid, bounds}
		}
	}
	refuse("TTL", "give 1s to 1h0m0s", func(o *node.LockOptions, d time.Duration) { o.TTL = d }, 1, time.Second-1, time.Hour+1, math.MaxInt64)
	refuse("MaxHold", "give 0 to 8784h0m0s", func(o *node.LockOptions, d time.Duration) { o.MaxHold = d }, maxHold+1, math.MaxInt64)
	refuse("Grace", "give 0 to 24h0m0s", func(o *node.LockOptions, d time.Duration) { o.Grace = d }, maxGrace+1, math.MaxInt64)
	refuse("Wait", "give 0 or more", func(o *node.LockOptions, d time.Duration) { o.Wait = d })
	for _, n := range []int{maxValue + 1, 1 << 20} {
		r := refused["Wait of -1"]
		r.o, r.want, r.bounds = node.LockOptions{Value: make([]byte, n)}, node.ErrTooLarge, "at most 65536"
		refused[fmt.Sprintf("Value of %d bytes", n)] = r
	}
	taken := map[string]node.LockOptions{
		"nothing": {}, "TTL at least": {TTL: time.Second}, "TTL at most": {TTL: time.Hour}, "MaxHold at most": {MaxHold: maxHold},
		"Grace at least": {Grace: 1}, "Grace at most": {Grace: maxGrace}, "Wait at least": {Wait: 1}, "Wait at most": {Wait: math.MaxInt64},
		"an empty Value": {Value: []byte{}}, "Value at most": {Value: bytes.Repeat([]byte{0xff}, maxValue)},
		"all at most": {TTL: time.Hour, MaxHold: maxHold, Grace: maxGrace, Wait: math.MaxInt64, Value: make([]byte, maxValue)},
	}
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		for name, acquire := range acquirers() {
			s := c.Node(others(c, owner)[0]).ShardAt(1)
			wantNothingAsked(t, c, func() {
				for what, r := range refused {
					_, err := acquire(t.Context(), s, &r.o)
					wantRefused(t, name+" with "+what, err, r.want, r.bounds)
				}
			})
			for what, o := range taken {
				h, err := acquire(t.Context(), s, &o)
				if err != nil {
					t.Errorf("%s with %s: %v", name, what, err)
					continue
				}
				for l, err := range c.Node(owner).ShardAt(1).Locks(t.Context(), "x") {
					if err != nil || len(l.Holders) != 1 || !bytes.Equal(l.Holders[0].Value, o.Value) {
						t.Errorf("%s with %s: got %d holders, %v, want one with the value", name, what, len(l.Holders), err)
					}
				}
				if err := h.release(t.Context()); err != nil {
					t.Errorf("%s with %s: release: %v", name, what, err)
				}
			}
			h, err := acquire(t.Context(), s, &node.LockOptions{MaxHold: 1})
			time.Sleep(100 * time.Millisecond)
			if err == nil { // it was over before the call returned, or right after
				err = h.Check()
			}
			wantErr(t, name+" with the shortest MaxHold", err, node.ErrLost)
		}
		for l := range c.Node(owner).ShardAt(1).Locks(t.Context(), "") {
			t.Errorf("%q is left: %d holders", l.Name, len(l.Holders))
		}
	})
}

// LockAll takes 1 to 64 names, none twice, and a semaphore 1 to 1,048,576 permits, the same for all: the rest is refused with the bounds, before anybody is
// asked, but for another number of permits, which only the owner knows of. Values of elections and results of jobs have bounds too.
func TestShard_CountsAndSizes(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx, s := t.Context(), c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		names := make([]string, 65)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		wantNothingAsked(t, c, func() {
			for what, bad := range map[string][]string{
				"none": nil, "no names": {}, "65": names, "a duplicate": {"a", "b", "a"}, "the same": {"a", "a"}, "an empty one": {"a", ""}, "two empty ones": {"", ""},
			} {
				_, err := s.LockAll(ctx, bad, nil)
				bounds := map[string]string{"a duplicate": `"a" is named twice`, "the same": `"a" is named twice`, "an empty one": "1 to 1024", "two empty ones": "1 to 1024"}[what]
				wantRefused(t, "lock all of "+what, err, node.ErrInvalid, cmp.Or(bounds, "1 to 64"))
			}
			for _, n := range []int{math.MinInt, -1, 0, 1<<20 + 1, math.MaxInt} {
				_, err := s.Semaphore(ctx, "p", n, nil)
				wantRefused(t, fmt.Sprint("semaphore of ", n), err, node.ErrInvalid, "1 to 1048576")
				wantRefused(t, fmt.Sprint("set permits to ", n), s.SetPermits(ctx, "p", n), node.ErrInvalid, "1 to 1048576")
			}
			_, err := s.Campaign(ctx, "e", make([]byte, 64<<10+1))
			wantRefused(t, "campaign with a value of +1", err, node.ErrTooLarge, "at most 65536")
		})
		for _, n := range []int{1, 2, 64} {
			l, err := s.LockAll(ctx, names[:n], nil)
			if err != nil || l.Unlock(ctx) != nil {
				t.Errorf("lock all of %d: %v", n, err)
			}
		}
		for _, n := range []int{1, 1<<20 - 1, 1 << 20} {
			p, err := s.Semaphore(ctx, "p", n, nil)
			if err != nil {
				t.Fatalf("semaphore of %d: %v", n, err)
			}
			_, err = s.Semaphore(ctx, "p", n-1+2*(1/n), nil)
			wantRefused(t, fmt.Sprint("semaphore beside one of ", n), err, node.ErrConflict, fmt.Sprint(n))
			if err := p.Release(ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		l, err := s.Campaign(ctx, "e", make([]byte, 64<<10))
		if err != nil || l.Resign(ctx) != nil {
			t.Errorf("campaign with the largest value: %v", err)
		}
	})
}
