package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// naming are all calls that take a name or a key, on a shard where nothing has it; each does what it does, undoes it, and returns the name as others see it meanwhile, or its own
// for a call that finds nothing.
func naming(ctx context.Context, s, other *node.Shard) map[string]func(name string) (seen string, err error) {
	locked := func(f func(*node.Shard, context.Context, string, *node.LockOptions) (*node.Lock, error)) func(string) (string, error) {
		return func(name string) (string, error) {
			l, err := f(s, ctx, name, nil)
			if err != nil {
				return "", err
			}
			return listedLock(ctx, other, name), l.Unlock(ctx)
		}
	}
	all := func(names func(string) []string) func(*node.Shard, context.Context, string, *node.LockOptions) (*node.Lock, error) {
		return func(s *node.Shard, ctx context.Context, name string, o *node.LockOptions) (*node.Lock, error) {
			return s.LockAll(ctx, names(name), o)
		}
	}
	missing := func(want error, f func(string) error) func(string) (string, error) {
		return func(name string) (string, error) {
			if err := f(name); !errors.Is(err, want) {
				return "", fmt.Errorf("got %w, want %w", err, want)
			}
			return name, nil
		}
	}
	calls := map[string]func(string) (string, error){
		"Lock": locked((*node.Shard).Lock), "TryLock": locked((*node.Shard).TryLock), "RLock": locked((*node.Shard).RLock),
		"LockAll, first":  locked(all(func(name string) []string { return []string{name, "z"} })),
		"LockAll, second": locked(all(func(name string) []string { return []string{"z", name} })),
		"Semaphore": func(name string) (string, error) {
			p, err := s.Semaphore(ctx, name, 2, nil)
			if err != nil {
				return "", err
			}
			seen := listedLock(ctx, other, name)
			return seen, errors.Join(other.SetPermits(ctx, name, 3), p.Release(ctx))
		},
		"SetPermits":    missing(node.ErrNotHeld, func(name string) error { return s.SetPermits(ctx, name, 3) }),
		"ForceRelease":  missing(node.ErrNotHeld, func(name string) error { return s.ForceRelease(ctx, name, 1) }),
		"RequestRevoke": missing(node.ErrNotHeld, func(name string) error { return s.RequestRevoke(ctx, name) }),
		"ForgetJob":     missing(node.ErrNotFound, func(name string) error { return s.ForgetJob(ctx, name) }),
		"Campaign": func(name string) (string, error) {
			l, err := s.Campaign(ctx, name, []byte(name))
			if err != nil {
				return "", err
			}
			return led(ctx, other, name), l.Resign(ctx)
		},
		"Lead": func(name string) (seen string, err error) {
			err = s.Lead(ctx, name, func(ctx context.Context, l *node.Leadership) error {
				err := l.Proclaim(ctx, []byte(name))
				seen = led(ctx, other, name)
				return err
			})
			return seen, err
		},
		"Observe": func(name string) (string, error) {
			for _, err := range s.Observe(ctx, name) {
				return name, err
			}
			return "", nil
		},
		"RunOnce": func(name string) (seen string, err error) {
			if _, err := s.RunOnce(ctx, name, nil, func(context.Context, *node.Run) ([]byte, error) { return nil, nil }); err != nil {
				return "", err
			}
			for j := range other.Jobs(ctx, name) {
				seen = j.Name
			}
			return seen, other.ForgetJob(ctx, name)
		},
	}
	return calls
}

// listedLock is the name of the lock as it is listed.
func listedLock(ctx context.Context, s *node.Shard, name string) string {
	for l, err := range s.Locks(ctx, name) {
		if err != nil {
			return err.Error()
		}
		return l.Name
	}
	return "nothing"
}

// led is the value of the election's leader.
func led(ctx context.Context, s *node.Shard, name string) string {
	for l, err := range s.Observe(ctx, name) {
		if err != nil {
			return err.Error()
		}
		return string(l.Value)
	}
	return "nothing"
}

// keyed are all calls that take the key of a record, as naming.
func keyed(ctx context.Context, s, other *node.Shard) map[string]func(key string) (seen string, err error) {
	written := func(f func(key string) error) func(string) (string, error) {
		return func(key string) (string, error) {
			if err := f(key); err != nil {
				return "", err
			}
			var seen []string
			l, err := other.List(ctx, key, nil)
			if err != nil {
				return "", err
			}
			for r := range l.All() {
				seen = append(seen, r.Key)
			}
			for e, err := range other.History(ctx, key) {
				if err != nil || e.Record.Key != key {
					return e.Record.Key, err
				}
				break
			}
			_, err = s.Delete(ctx, key)
			return strings.Join(seen, " and "), err
		}
	}
	txn := func(f func(key string) node.Txn) func(string) (string, error) {
		return func(key string) (string, error) { _, err := s.Txn(ctx, f(key)); return key, err }
	}
	return map[string]func(string) (string, error){
		"Put":            written(func(key string) error { _, err := s.Put(ctx, key, nil, nil); return err }),
		"CompareAndSwap": written(func(key string) error { _, err := s.CompareAndSwap(ctx, key, 0, nil, nil); return err }),
		"Update": written(func(key string) error {
			_, err := s.Update(ctx, key, func([]byte) ([]byte, error) { return nil, nil })
			return err
		}),
		"Add": written(func(key string) error { _, err := s.Add(ctx, key, 1); return err }),
		"Txn, then": written(func(key string) error {
			_, err := s.Txn(ctx, node.Txn{Then: []node.Op{node.PutOp(key, nil, nil)}})
			return err
		}),
		"Txn, if":   txn(func(key string) node.Txn { return node.Txn{If: []node.Cond{node.KeyAbsent(key)}} }),
		"Txn, else": txn(func(key string) node.Txn { return node.Txn{Else: []node.Op{node.DeleteOp(key)}} }),
		"Txn, get":  txn(func(key string) node.Txn { return node.Txn{Then: []node.Op{node.GetOp(key)}} }),
		"Delete":    func(key string) (string, error) { _, err := s.Delete(ctx, key); return key, err },
		"Get": func(key string) (string, error) {
			if _, err := s.Get(ctx, key); !errors.Is(err, node.ErrNotFound) {
				return "", err
			}
			return key, nil
		},
		"History": func(key string) (string, error) {
			for _, err := range s.History(ctx, key) {
				return key, err
			}
			return key, nil
		},
		"Live": func(key string) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := node.Typed[int]{Shard: s}.Live(ctx, key, 1)
			return key, err
		},
	}
}

// A name or key is any bytes, 1 to 1024 of them: text or not, with NUL or not; each call takes them and others see the same bytes. An empty one is ErrInvalid and a longer one
// ErrTooLarge, with the bounds, before anybody is asked, by every call that takes one: case 66.
func TestShard_NamesAndKeys(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		owner := c.AwaitOwner(1)
		s, other := c.Node(others(c, owner)[0]).ShardAt(1), c.Node(owner).ShardAt(1)
		good := []string{"x", "\x00", "\xff", "a\x00b\x00", "\xc3\x28 no text", "%s %d\n", strings.Repeat("\xfe", 1024)}
		for _, calls := range []map[string]func(string) (string, error){naming(t.Context(), s, other), keyed(t.Context(), s, other)} {
			for what, call := range calls {
				for _, name := range good {
					if seen, err := call(name); err != nil || seen != name {
						t.Errorf("%s of %.20q: got %.100q, %.200v, want the name", what, name, seen, err)
					}
				}
				wantNothingAsked(t, c, func() {
					_, err := call("")
					wantRefused(t, what+" of nothing", err, node.ErrInvalid, "give 1 to 1024 bytes")
					for _, n := range []int{1025, 1 << 20} {
						_, err = call(strings.Repeat("n", n))
						wantRefused(t, fmt.Sprint(what, " of ", n, " bytes"), err, node.ErrTooLarge, "at most 1024")
					}
				})
			}
		}
		wantNothingAsked(t, c, func() {
			_, _, err := s.DeletePrefix(t.Context(), strings.Repeat("p", 1025))
			wantRefused(t, "delete prefix of 1025 bytes", err, node.ErrTooLarge, "at most 1024")
		})
	})
}

// Names differ in every byte: none is cut at a NUL, mended to be text, or folded.
func TestShard_Lock_NamesAreDistinct(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		s := c.Node(others(c, c.AwaitOwner(1))[0]).ShardAt(1)
		long := strings.Repeat("l", 1023)
		names := []string{"a", "A", "a\x00", "a\x00\x00", "a\x00b", "\xff", "\xfe", "\xef\xbf\xbd", "é", "e\u0301", long, long + "\x00", long + "\x01"}
		for _, name := range names {
			if _, err := s.TryLock(within(t, time.Minute), name, nil); err != nil {
				t.Errorf("%.20q beside the others: %v", name, err)
			}
		}
		var listed []string
		for l := range s.Locks(t.Context(), "") {
			listed = append(listed, l.Name)
		}
		slices.Sort(names)
		if !slices.Equal(listed, names) {
			t.Errorf("listed: got %.20q, want %.20q", listed, names)
		}
	})
}
