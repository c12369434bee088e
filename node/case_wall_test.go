package node_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/nodetest"
)

// walls are the wall clocks of nodes, off by as much as the test says.
type walls [5]atomic.Int64

func (w *walls) env(i int, e *env.Env) {
	e.Wall = func() time.Time { return time.Now().Add(time.Duration(w[i].Load())) }
}

// step steps every clock, every 200 ms until ctx ends, to an hour or a month ahead or behind, or to the right time.
func (w *walls) step(ctx context.Context) {
	const month = 30 * 24 * time.Hour
	rng := rand.New(rand.NewPCG(39, 1))
	for ctx.Err() == nil {
		for i := range w {
			w[i].Store(int64([]time.Duration{0, time.Hour, -time.Hour, month, -month}[rng.IntN(5)]))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Wall clocks that are hours and months apart, and are stepped all the time, change nothing: no session is lost, no renewal fails, the owner stays, a
// dead holder's lock is free after its own TTL whatever the candidate's, a record lives as long as its TTL, a job stays completed, and no history is
// forgotten: case 39.
func TestCase039_WallClockStepsChangeNothing(t *testing.T) {
	var w walls
	const ttl, short = 10 * time.Second, time.Second
	bubble(t, 3, &nodetest.Options{Config: sessionTTL(2 * time.Second), Env: w.env}, func(t *testing.T, c *nodetest.Cluster) {
		holder := caller(c)
		owner := c.AwaitOwner(1)
		s, h := c.Node(owner).ShardAt(1), c.Node(holder).ShardAt(1)
		ownership, _ := s.Owned()
		first := mustPut(t, s, "first", "v")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.step(ctx) // stops when ctx ends
		runs := 0
		job := func() {
			t.Helper()
			_, err := h.RunOnce(t.Context(), "job", &node.JobOptions{Keep: time.Minute}, func(context.Context, *node.Run) ([]byte, error) {
				runs++
				return nil, nil
			})
			if err != nil && !errors.Is(err, node.ErrAlreadyDone) {
				t.Errorf("run once: %v", err)
			}
		}
		job()
		l := lockFor(t, h, "l", ttl)
		c.Track("l", l)
		for i := range 30 {
			mustPut(t, s, fmt.Sprint("k", i), "v")
			time.Sleep(time.Second)
		}
		put := time.Now()
		if _, err := h.Put(t.Context(), "ends", nil, &node.PutOptions{TTL: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c.Await("the record to end", func() bool { _, err := s.Get(t.Context(), "ends"); return err != nil })
		if took := time.Since(put); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("a record with a TTL of 5 s lived for %v", took)
		}
		job()
		if runs != 1 {
			t.Errorf("the job ran %d times, want once", runs)
		}
		times := map[time.Duration]bool{} // how far what is recorded is off, in hours
		for e, err := range s.Watch(within(t, 10*time.Second), "", &node.WatchOptions{From: first}) {
			if err != nil {
				t.Fatalf("watch from revision %d: %v", first, err)
			}
			if times[time.Since(e.At).Round(time.Hour)] = true; e.Record.Key == "k29" {
				break
			}
		}
		if len(times) < 4 {
			t.Errorf("recorded dates are off by %v: the clocks were not stepped", times)
		}
		if st := c.Node(holder).Stats(); l.Check() != nil || st.SessionsLost != 0 || st.RenewalsFailed != 0 {
			t.Errorf("lock: %v; %d sessions lost, %d renewals failed", l.Check(), st.SessionsLost, st.RenewalsFailed)
		}
		if now, ok := s.Owned(); !ok || now.Token() != ownership.Token() {
			t.Errorf("the shard has another owner: token %d, want %d", now.Token(), ownership.Token())
		}
		cut := time.Now()
		c.Isolate(holder)
		lockFor(t, s, "l", short)
		if took := time.Since(cut); took < ttl-ttl/4-50*time.Millisecond || took > outlasted(ttl)+200*time.Millisecond {
			t.Errorf("the lock was free after %v, want about the holder's TTL, %v", took, ttl)
		}
		c.Heal()
	})
}

// The wall clock enters where dates are recorded or shown to people, and nowhere else: all other times are differences on monotonic clocks: case 39.
func TestCase039_WallClockIsReadForPeopleOnly(t *testing.T) {
	wall := []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "UTC", "Local", "Date", "Round"} // of package time and its Time
	want := []string{
		"node/event.go eventOf", "node/job.go complete", "node/jobs.go jobInfo", "node/jobs.go jobs", "node/propose.go commit",
		"fsm/jobread.go view", "transport/dial.go dial",
	}
	var got []string
	for _, dir := range []string{"node", "fsm", "membership", "transport"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && (d.Name() == "nodetest" || d.Name() == "fence") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok {
						if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(wall, sel.Sel.Name) {
							got = append(got, strings.TrimPrefix(filepath.ToSlash(path), "../")+" "+fn.Name.Name)
						}
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, slices.Compact(got)); d != "" {
		t.Errorf("functions that read or show dates (-want +got):\n%s", d)
	}
}
