package node_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Every kind of hold keeps the contract of Hold from its grant to its release: tokens rise whatever the kind; a guarded write passes while it is held and is
// fenced after; a release with a cancelled ctx is that error, changes nothing and can be repeated (case 18); of a hundred releases at once, by the
// handle and by copies of it, one is nil and the others are ErrNotHeld (case 156); Done and Context end; the next holder gets it at once, and is not
// touched by further releases of the old handle.
func TestHold_Conformance(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		i := others(c, c.AwaitOwner(1))[0]
		a, b := c.Node(i).ShardAt(1), c.Node(c.AwaitOwner(1)).ShardAt(1)
		ctx := t.Context()
		var last node.Token
		for _, k := range kindsOfHolds() {
			h, err := k.acquire(ctx, a, "x")
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if h.Token() <= last {
				t.Errorf("%s: token %d after %d", k.name, h.Token(), last)
			}
			if err := h.Check(); err != nil || isDone(h) {
				t.Errorf("%s: check %v, done %v", k.name, err, isDone(h))
			}
			if _, err := a.Guarded(h.Hold).Put(ctx, "k", []byte(k.name), nil); err != nil {
				t.Errorf("%s: guarded put: %v", k.name, err)
			}
			hctx := h.Context(ctx)
			if !k.once {
				cancelled, cancel := context.WithCancel(ctx)
				cancel()
				wantErr(t, k.name+": release with a cancelled ctx", h.release(cancelled), context.Canceled)
				if err := h.Check(); err != nil || hctx.Err() != nil {
					t.Errorf("%s after a release that was not sent: check %v, context %v", k.name, err, hctx.Err())
				}
			}
			releaseOnce(t, k, h)
			wantErr(t, k.name+": check after release", h.Check(), node.ErrNotHeld)
			if cause := context.Cause(hctx); !errors.Is(cause, node.ErrNotHeld) || !isDone(h) {
				t.Errorf("%s after release: cause %v, done %v", k.name, cause, isDone(h))
			}
			wantErr(t, k.name+": cause of a late context", context.Cause(h.Context(ctx)), node.ErrNotHeld)
			next := mustBeFree(t, k, b, "x")
			if next.Token() <= h.Token() {
				t.Errorf("%s: the next token is %d after %d", k.name, next.Token(), h.Token())
			}
			if !k.once {
				wantErr(t, k.name+": release after another has it", h.release(ctx), node.ErrNotHeld)
			}
			_, err = a.Guarded(h.Hold).Put(ctx, "k", []byte("late"), nil)
			wantErr(t, k.name+": put guarded by a released hold", err, node.ErrFenced)
			if _, err := b.Guarded(next.Hold).Put(ctx, "k", nil, nil); err != nil || next.Check() != nil {
				t.Errorf("%s: the next holder: put %v, check %v", k.name, err, next.Check())
			}
			last = next.Token()
			if err := next.release(ctx); err != nil {
				t.Errorf("%s: release of the next: %v", k.name, err)
			}
		}
	})
}

// releaseOnce releases a hold a hundred times at once: one succeeds.
func releaseOnce(t *testing.T, k kindOfHold, h held) {
	t.Helper()
	if k.once {
		if err := h.release(t.Context()); err != nil {
			t.Errorf("%s: release: %v", k.name, err)
		}
		return
	}
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for n := range cap(errs) {
		release := h.release
		if n%2 == 1 {
			release = h.copied
		}
		wg.Go(func() { errs <- release(t.Context()) }) // stops when it is released
	}
	wg.Wait()
	close(errs)
	done := 0
	for err := range errs {
		if err == nil {
			done++
		} else {
			wantErr(t, k.name+": release beside others", err, node.ErrNotHeld)
		}
	}
	if done != 1 {
		t.Errorf("%s: %d of 100 releases at once succeeded, want 1", k.name, done)
	}
}

// Every kind of hold that is cut off says by the local clock that it is lost, before another is granted it, and finally: then its contexts have ended with ErrLost,
// releasing it is ErrLost at once, without network and whatever the ctx, and touches nothing of the next holder; what it guarded is
// fenced (cases 3, 23 and 157). An Ownership behaves alike.
func TestHold_Conformance_Loss(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		for _, at := range []string{"Other", "Owner"} {
			owner := c.AwaitOwner(1)
			i := owner
			if at == "Other" {
				i = others(c, owner)[0]
			}
			s, other := c.Node(i).ShardAt(1), c.Node(others(c, owner, i)[0]).ShardAt(1)
			lost := map[string]held{}
			ctxs := map[string]context.Context{}
			for _, k := range kindsOfHolds() {
				h, err := k.acquire(t.Context(), s, at+k.name)
				if err != nil {
					t.Fatalf("%s: %v", k.name, err)
				}
				if !k.shared {
					c.Track(at+k.name, h.Hold)
				}
				lost[k.name], ctxs[k.name] = h, h.Context(t.Context())
			}
			if o, ok := s.Owned(); ok {
				lost["Ownership"], ctxs["Ownership"] = held{Hold: o}, o.Context(t.Context())
			}
			c.Isolate(i)
			next := map[string]held{}
			for _, k := range kindsOfHolds() {
				acquire := k.acquire
				if k.name == "TryLock" {
					acquire = kindsOfHolds()[0].acquire // which waits
				}
				h, err := acquire(within(t, time.Minute), other, at+k.name)
				if err != nil {
					t.Fatalf("%s for the next: %v", k.name, err)
				}
				if err := lost[k.name].Check(); !k.shared && !errors.Is(err, node.ErrLost) {
					t.Errorf("%s: check when the next has it: got %v, want ErrLost", k.name, err)
				}
				if !k.shared {
					c.Track(at+k.name, h.Hold)
				}
				next[k.name] = h
			}
			time.Sleep(6 * time.Second)
			for name, h := range lost {
				wantLost(ctxs[name], t, at+" "+name, h)
			}
			c.Heal()
			c.AwaitReady()
			for name, h := range lost {
				_, err := s.Guarded(h.Hold).Put(within(t, 10*time.Second), "k", nil, nil)
				wantErr(t, name+": put guarded by a lost hold", err, node.ErrFenced)
			}
			for name, h := range next {
				if err := h.Check(); err != nil {
					t.Errorf("%s: the next holder: %v", name, err)
				}
				if err := h.release(t.Context()); err != nil {
					t.Errorf("%s: release of the next: %v", name, err)
				}
			}
		}
	})
}

// wantLost fails unless a hold is lost, and says so at once.
func wantLost(ctx context.Context, t *testing.T, what string, h held) {
	t.Helper()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, what+": check", h.Check(), node.ErrLost)
	if !isDone(h) || !errors.Is(context.Cause(ctx), node.ErrLost) || !errors.Is(context.Cause(h.Context(t.Context())), node.ErrLost) {
		t.Errorf("%s: done %v, cause %v, want ErrLost", what, isDone(h), context.Cause(ctx))
	}
	began := time.Now()
	switch {
	case h.copied != nil:
		wantErr(t, what+": release after loss", h.release(t.Context()), node.ErrLost)
		wantErr(t, what+": release of a copy after loss, with a cancelled ctx", h.copied(cancelled), node.ErrLost)
	case h.release != nil: // a run
		if err := h.release(t.Context()); err != nil {
			t.Errorf("%s: end of a lost run: %v", what, err)
		}
	}
	if took := time.Since(began); took != 0 {
		t.Errorf("%s: releases after loss took %v, want no network", what, took)
	}
}

// A release without a majority is an error, and one that was sent ends the trust; repeated later it takes effect at once. If nobody repeats it the name is free when
// the session ends. That holds for every kind, at the owner and elsewhere: case 18.
func TestCase018_ReleaseWithoutQuorumCanBeRepeated(t *testing.T) {
	const ttl = 8 * time.Second
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(ttl)}, func(t *testing.T, c *nodetest.Cluster) {
		for _, at := range []string{"Other", "Owner"} {
			for _, repeat := range []bool{true, false} {
				owner := c.AwaitOwner(1)
				i := owner
				if at == "Other" {
					i = others(c, owner)[0]
				}
				s, other := c.Node(i).ShardAt(1), c.Node(others(c, owner, i)[0]).ShardAt(1)
				holds := map[string]held{}
				for _, k := range kindsOfHolds() {
					if k.once {
						continue
					}
					h, err := k.acquire(t.Context(), s, at+k.name)
					if err != nil {
						t.Fatalf("%s: %v", k.name, err)
					}
					holds[k.name] = h
				}
				c.Isolate(i)
				cut := time.Now()
				var wg sync.WaitGroup
				for name, h := range holds {
					wg.Go(func() { // stops after a second
						err := h.release(within(t, time.Second))
						if !errors.Is(err, node.ErrUnknown) && !errors.Is(err, node.ErrNoQuorum) {
							t.Errorf("%s: release without a majority: got %v, want ErrUnknown or ErrNoQuorum", name, err)
						}
						wantErr(t, name+": check after it", h.Check(), node.ErrNotHeld)
					})
				}
				wg.Wait()
				if repeat {
					c.Heal()
				}
				for _, k := range kindsOfHolds() {
					h, ok := holds[k.name]
					if !ok {
						continue
					}
					if repeat {
						if err := h.release(within(t, 10*time.Second)); err != nil {
							t.Errorf("%s: release again: %v", k.name, err)
						}
						next := mustBeFree(t, k, other, at+k.name)
						if err := next.release(t.Context()); err != nil {
							t.Errorf("%s: release of the next: %v", k.name, err)
						}
						continue
					}
					if k.name == "TryLock" {
						k = kindsOfHolds()[0]
					}
					next, err := k.acquire(within(t, time.Minute), other, at+k.name)
					if err != nil {
						t.Fatalf("%s: nobody released it again: %v", k.name, err)
					}
					if took := time.Since(cut); took > ttl+5*time.Second {
						t.Errorf("%s: free %v after the holder was cut off, TTL %v", k.name, took, ttl)
					}
					if err := next.release(t.Context()); err != nil {
						t.Errorf("%s: release of the next: %v", k.name, err)
					}
				}
				c.Heal()
				c.AwaitReady()
			}
		}
	})
}

// The zero value of every hold is not held, and harmless.
func TestHold_Zero(t *testing.T) {
	for _, h := range []node.Hold{&node.Lock{}, &node.Permit{}, &node.Leadership{}, &node.Run{}, &node.Session{}, node.Ownership{}} {
		if h.Token() != 0 || !errors.Is(h.Check(), node.ErrNotHeld) || !isDone(h) || context.Cause(h.Context(t.Context())) == nil {
			t.Errorf("%T: got token %d, check %v, done %v", h, h.Token(), h.Check(), isDone(h))
		}
	}
	for name, err := range map[string]error{
		"Unlock": (&node.Lock{}).Unlock(t.Context()), "Release": (&node.Permit{}).Release(t.Context()), "Resign": (&node.Leadership{}).Resign(t.Context()),
		"Proclaim": (&node.Leadership{}).Proclaim(t.Context(), nil), "Transfer": (&node.Leadership{}).Transfer(t.Context(), "x"), "Close": (&node.Session{}).Close(t.Context()),
	} {
		if !errors.Is(err, node.ErrNotHeld) {
			t.Errorf("%s of a zero value: got %v, want ErrNotHeld", name, err)
		}
	}
}
