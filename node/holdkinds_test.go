package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
)

// A held is one hold of some kind, and how it is given back.
type held struct {
	node.Hold
	release func(context.Context) error
	copied  func(context.Context) error // release of a copy of the handle
}

// A kindOfHold is one way to hold something in a shard.
type kindOfHold struct {
	name    string
	shared  bool // others may hold beside it
	fenced  bool // ForceRelease can name it
	once    bool // a callback: it is given back once, by returning
	acquire func(ctx context.Context, s *node.Shard, name string) (held, error)
}

func heldLock(l *node.Lock, err error) (held, error) {
	if err != nil {
		return held{}, err
	}
	cp := *l
	return held{l, l.Unlock, cp.Unlock}, nil
}

// kindsOfHolds are all that hang on a session, and sessions.
func kindsOfHolds() []kindOfHold {
	return []kindOfHold{
		{name: "Lock", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			return heldLock(s.Lock(ctx, name, nil))
		}},
		{name: "TryLock", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			return heldLock(s.TryLock(ctx, name, nil))
		}},
		{name: "RLock", shared: true, fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			return heldLock(s.RLock(ctx, name, nil))
		}},
		{name: "LockAll", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			return heldLock(s.LockAll(ctx, []string{name, name + "-2"}, nil))
		}},
		{name: "OwnSession", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			return heldLock(s.Lock(ctx, name, &node.LockOptions{TTL: 3 * time.Second}))
		}},
		{name: "Permit", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			p, err := s.Semaphore(ctx, name, 1, nil)
			if err != nil {
				return held{}, err
			}
			cp := *p
			return held{p, p.Release, cp.Release}, nil
		}},
		{name: "Leadership", fenced: true, acquire: func(ctx context.Context, s *node.Shard, name string) (held, error) {
			l, err := s.Campaign(ctx, name, nil)
			if err != nil {
				return held{}, err
			}
			cp := *l
			return held{l, l.Resign, cp.Resign}, nil
		}},
		{name: "Run", fenced: true, once: true, acquire: acquireRun},
		{name: "Session", shared: true, acquire: func(ctx context.Context, s *node.Shard, _ string) (held, error) {
			x, err := s.Session(ctx, 3*time.Second)
			if err != nil {
				return held{}, err
			}
			return held{x, x.Close, x.Close}, nil
		}},
	}
}

// errGivenUp is how a run ends without completing its job.
var errGivenUp = errors.New("given up")

// acquireRun begins a run, which goes on until it is released or lost, or ctx ends.
func acquireRun(ctx context.Context, s *node.Shard, name string) (held, error) {
	began, stop, ended := make(chan *node.Run), make(chan struct{}), make(chan error, 1)
	go func() { // stops when released, or when the run cannot begin
		_, err := s.RunOnce(ctx, name, nil, func(fctx context.Context, r *node.Run) ([]byte, error) {
			began <- r
			select {
			case <-stop:
			case <-fctx.Done():
			}
			return nil, errGivenUp
		})
		ended <- err
	}()
	select {
	case err := <-ended:
		return held{}, err
	case r := <-began:
		return held{Hold: r, release: func(context.Context) error {
			close(stop)
			if err := <-ended; !errors.Is(err, errGivenUp) || errors.Is(err, node.ErrUnknown) || errors.Is(err, node.ErrNoQuorum) {
				return err
			}
			return nil
		}}, nil
	}
}

// A name that is held as one kind can be acquired as that kind again only once it is free.
func mustBeFree(t *testing.T, k kindOfHold, s *node.Shard, name string) held {
	t.Helper()
	h, err := k.acquire(within(t, 100*time.Millisecond), s, name)
	if err != nil {
		t.Fatalf("%s: %q is not free at once: %v", k.name, name, err)
	}
	return h
}
