package nodetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// plant runs a cluster of one node with what change does to its surroundings, and f, if not nil, before its end. It returns what was
// reported, once everything has ended.
func plant(t *testing.T, change func(c *Cluster, e *env.Env), f func(c *Cluster)) *recorder {
	r := &recorder{TB: t, own: true}
	synctest.Test(t, func(t *testing.T) {
		c := New(r, 0, &Options{Replicas: 1})
		c.o.Env = func(_ int, e *env.Env) { change(c, e) }
		c.Add(func(n *node.Config) { n.Bootstrap, n.Shards, n.Replicas = 1, 1, 1 })
		if f != nil {
			f(c)
		}
		r.end()
		synctest.Wait()
	})
	return r
}

// A slowEndpoint takes its time to close.
type slowEndpoint struct {
	*memnet.Endpoint
	d time.Duration
}

func (s slowEndpoint) Close() error {
	time.Sleep(s.d)
	return s.Endpoint.Close()
}

// listening wraps what a node listens with.
func listening(c *Cluster, e *env.Env, wrap func(*memnet.Endpoint, hclog.Logger) transport.Transport) {
	e.Listen = func(bind, _ string, log hclog.Logger) (transport.Transport, error) {
		p, err := c.net.Listen(bind)
		return wrap(p, log), err
	}
}

// The helper reports nothing of a cluster in which nothing is planted: what follows is not its own doing.
func TestPlanted_Nothing(t *testing.T) {
	plant(t, func(*Cluster, *env.Env) {}, (*Cluster).AwaitReady).quiet(t)
}

// An Open, a Close, a Close of a killed node and a Shutdown that take too long are reported (invariants 6 and 8).
func TestPlanted_Slow(t *testing.T) {
	closing := func(d time.Duration) func(*Cluster, *env.Env) {
		return func(c *Cluster, e *env.Env) {
			listening(c, e, func(p *memnet.Endpoint, _ hclog.Logger) transport.Transport { return slowEndpoint{p, d} })
		}
	}
	opening := func(c *Cluster, e *env.Env) {
		listening(c, e, func(p *memnet.Endpoint, _ hclog.Logger) transport.Transport {
			time.Sleep(openLimit + time.Second)
			return p
		})
	}
	plant(t, opening, nil).saw(t, "start node 0: did not return")
	plant(t, closing(closeLimit-2*time.Second), nil).quiet(t)
	plant(t, closing(closeLimit+time.Second), nil).saw(t, "close node 0: did not return")
	plant(t, closing(closeLimit+time.Second), func(c *Cluster) { c.Close(0) }).saw(t, "close node 0: did not return")
	plant(t, closing(closeLimit+time.Second), func(c *Cluster) { c.Kill(0) }).saw(t, "close node 0: did not return")
	plant(t, closing(patience+closeLimit+time.Second), func(c *Cluster) { c.Shutdown(0) }).saw(t, "shut node 0 down: did not return")
}

// A call that hangs beyond its deadline is reported while it hangs; one that returns in time, or has no deadline, is not (invariants 6 and 8).
func TestPlanted_HangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, r := planted(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stop := k.byDeadline(ctx, "call in time")
		k.byDeadline(t.Context(), "call without a deadline")
		time.Sleep(time.Second)
		stop()
		<-ctx.Done()
		k.byDeadline(ctx, "call after the deadline")()
		time.Sleep(time.Minute)
		r.quiet(t)
		k.byDeadline(ctx, "hanging call")
		time.Sleep(2 * late)
		r.saw(t, "hanging call did not return")
	})
}

// A port, a file of the state, one of the Raft log, a lock and a goroutine that a closed node leaves behind are reported, each (invariant 6).
func TestPlanted_Leaks(t *testing.T) {
	var left []io.Closer // so that the bubble can end
	keep := func(c io.Closer, err error) {
		if err != nil {
			t.Error(err)
		}
		left = append(left, c)
	}
	for what, change := range map[string]func(*Cluster, *env.Env){
		"a port is open: 127.9.9.9:1": func(c *Cluster, _ *env.Env) { keep(c.net.Listen("127.9.9.9:1")) },
		"files are open: /state (1)":  func(_ *Cluster, e *env.Env) { keep(e.FS.Create("/state", "")) },
		"files are open: /log (1)":    func(_ *Cluster, e *env.Env) { keep(e.RaftFS.Create("/log")) },
		"files are open: /lock (1)":   func(_ *Cluster, e *env.Env) { keep(e.FS.Lock("/lock")) },
		"transport/memnet.(*Endpoint).Accept": func(c *Cluster, _ *env.Env) {
			p, err := c.net.Listen("127.9.9.9:1")
			keep(p, err)
			go func() { // stops when p is closed, at the end
				if _, err := p.Accept(transport.Raft); err == nil {
					t.Error("a connection came")
				}
			}()
		},
	} {
		r := plantThen(t, change, func() {
			for _, l := range slices.Backward(left) {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			left = nil
		})
		r.saw(t, what)
	}
}

// plantThen is plant, and calls then in the bubble when the helper is through.
func plantThen(t *testing.T, change func(*Cluster, *env.Env), then func()) *recorder {
	return plant(t, change, func(c *Cluster) { c.t.(*recorder).atEnd(then) })
}

// A node that fails on a sound disk, and a panic of the Raft library, also one that was recovered, are reported; where the test makes a
// node fail they are not (invariant 8).
func TestPlanted_Failures(t *testing.T) {
	fails := func(c *Cluster, e *env.Env) {
		listening(c, e, func(p *memnet.Endpoint, log hclog.Logger) transport.Transport {
			log.Named("raft").Error("panic: invalid commit index", "pkg", "raft")
			log.Error("cannot take what a peer sent", "err", errors.New("handler panicked: index out of range"))
			return p
		})
	}
	seen := plant(t, fails, nil)
	seen.saw(t, "the Raft library panicked: panic: invalid commit index")
	seen.saw(t, "handler panicked: index out of range")
	expected := func(c *Cluster, e *env.Env) {
		c.MayFail(0)
		fails(c, e)
	}
	plant(t, expected, nil).quiet(t)

	r := plant(t, func(*Cluster, *env.Env) {}, func(c *Cluster) {
		c.AwaitReady()
		c.checks.judgeHealth(0, errors.New("gave up"), false)
	})
	r.saw(t, "node 0 failed: gave up")
}

// A watch that goes back, repeats, skips a change, or tells progress too early breaks invariant 4.
func TestPlanted_Watch(t *testing.T) {
	put := func(key string, at, before node.Revision) node.Event {
		e := node.Event{Type: node.EventPut, Revision: at, Record: node.Record{Key: key, Mod: at}}
		if before != 0 {
			e.Prev = node.Record{Key: key, Mod: before}
		}
		return e
	}
	gone := func(key string, at, before node.Revision) node.Event {
		return node.Event{Type: node.EventDelete, Revision: at, Record: node.Record{Key: key, Mod: at}, Prev: node.Record{Key: key, Mod: before}}
	}
	mark := func(typ node.EventType, at node.Revision) node.Event { return node.Event{Type: typ, Revision: at} }
	listed := func(key string, mod, at node.Revision) node.Event {
		return node.Event{Type: node.EventPut, Revision: at, Record: node.Record{Key: key, Mod: mod}}
	}
	begin := []node.Event{listed("a", 3, 5), listed("b", 5, 5), mark(node.EventSynced, 5)}
	for what, tt := range map[string]struct {
		then []node.Event
		want string // "": nothing is wrong
	}{
		"Sound":         {[]node.Event{put("a", 6, 3), put("c", 6, 0), gone("b", 8, 5), mark(node.EventProgress, 9), put("b", 10, 0)}, ""},
		"Back":          {[]node.Event{put("a", 8, 3), put("b", 7, 5)}, "came after revision 8"},
		"Twice":         {[]node.Event{put("a", 6, 3), put("a", 6, 6)}, "told twice"},
		"Gap":           {[]node.Event{put("a", 8, 6)}, "follows revision 6, and 3 was told before"},
		"GapAtDelete":   {[]node.Event{gone("a", 8, 6)}, "follows revision 6"},
		"UnseenDelete":  {[]node.Event{put("a", 8, 0)}, "follows revision 0"},
		"EarlyProgress": {[]node.Event{mark(node.EventProgress, 7), put("a", 7, 3)}, "came after progress 7"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, r := planted(t)
				m := newMirror(k, "watch", &node.WatchOptions{Initial: true})
				for _, e := range append(begin[:len(begin):len(begin)], tt.then...) {
					m.hear(e, nil)
				}
				if tt.want == "" {
					r.quiet(t)
				} else {
					r.saw(t, tt.want)
				}
			})
		})
	}
}
