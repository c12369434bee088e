package membership

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/transport/memnet"
)

// lingering is how long goroutines of memberlist may outlive its Shutdown.
const lingering = 15 * time.Second

func uuid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) }

func record(i int, addr string) Record {
	return Record{ID: uuid(i), Name: fmt.Sprintf("n%d", i), Addr: addr, Incarnation: 1, Nonce: uint64(i)*1000 + 1, MaxVersion: 1}
}

// again is the record of the next start at addr.
func (r Record) again(addr string) Record {
	r.Incarnation++
	r.Nonce++
	r.Addr = addr
	return r
}

func addrOf(i int) string { return fmt.Sprintf("10.0.0.%d:7400", i) }

// nightly is n by day and many when the nightly run asks for it.
func nightly(n, many int) int {
	if os.Getenv("OARLOCK_NIGHTLY") == "1" {
		return many
	}
	return n
}

// A world is some nodes in a bubble.
type world struct {
	t   *testing.T
	net *memnet.Network
	log hclog.Logger
	all []*site
}

// A site is one running node.
type site struct {
	*Membership
	end    *memnet.Endpoint
	closed bool
}

// inWorld runs f in a bubble and stops all sites afterwards.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: memnet.New(memnet.Options{Delay: time.Millisecond}), log: hclog.NewNullLogger()}
		defer time.Sleep(lingering)
		defer w.stop()
		f(t, w)
	})
}

func (w *world) stop() {
	for _, s := range w.all {
		s.kill()
	}
}

// start opens a node whose configuration may be changed by edit.
func (w *world) start(r Record, join []string, edit ...func(*Config)) *site {
	w.t.Helper()
	end, err := w.net.Listen(r.Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	c := Config{Self: r, Join: join, Transport: end, Logger: w.log}
	c.Lookup = func(context.Context, string) ([]string, error) { return nil, fmt.Errorf("no names here") }
	for _, e := range edit {
		e(&c)
	}
	m, err := Open(c)
	if err != nil {
		_ = end.Close()
		w.t.Fatal(err)
	}
	s := &site{Membership: m, end: end}
	w.all = append(w.all, s)
	return s
}

// startAll opens n nodes that know the first one and waits until all see each other.
func (w *world) startAll(n int, edit ...func(*Config)) []*site {
	w.t.Helper()
	var sites []*site
	for i := 1; i <= n; i++ {
		sites = append(sites, w.start(record(i, addrOf(i)), []string{addrOf(1)}, edit...))
	}
	w.until(15*time.Second, "all see each other", func() bool { return converged(sites) })
	return sites
}

// kill stops a node without a farewell.
func (s *site) kill() {
	if !s.closed {
		s.closed = true
		_ = s.Close()
		_ = s.end.Close()
	}
}

// until waits in virtual time and says how long it took.
func (w *world) until(limit time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			for _, s := range w.all {
				w.t.Logf("%s: %v", s.Self().Name, states(s))
			}
			w.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// states maps names to states as s sees them.
func states(s *site) map[string]string {
	m := map[string]string{}
	for _, member := range s.Members() {
		m[member.Name] = fmt.Sprintf("%v %s #%d", member.State, member.Addr, member.Incarnation)
	}
	return m
}

func converged(sites []*site) bool {
	for _, s := range sites {
		for _, other := range sites {
			if stateOf(s, other.Self().ID) != Alive || !addrKnown(s, other.Self()) {
				return false
			}
		}
	}
	return true
}

func addrKnown(s *site, r Record) bool {
	addr, ok := s.Addr(r.ID)
	return ok && addr == r.Addr
}

func stateOf(s *site, id string) State {
	m, _ := s.Member(id)
	return m.State
}
