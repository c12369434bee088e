package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A watch that has looked at a replica which lags behind what the feed has heard of looks again instead of waiting for a change that was told already.
func TestWatch_LooksAgainBehindTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &group{n: &Node{}}
		g.feed.init(g)
		g.feed.running = true // nobody asks in this test
		p := g.feed.join("k")
		defer p.leave()
		g.feed.heard = 10
		w := &watch{g: g}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.wait(ctx, p, p.next(), 9); err != nil {
			t.Errorf("a look up to 9 when the feed has heard of 10: got %v, want another look at once", err)
		}
		if err := w.wait(ctx, p, p.next(), 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a look up to 10: got %v, want it to wait", err)
		}
	})
}
