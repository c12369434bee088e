//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
	"github.com/oarlock/oarlock/examples/internal/procs/procstest"
)

// TestMain lets this test binary be the processes of the kill test, so that they run under the race detector when the test does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-process" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestProcess_Kill: whenever the owner of a third of the shards is killed, each of them gets a new owner with a higher token, no
// acknowledged write is lost, and each customer is billed exactly once (cases 14, 60).
func TestProcess_Kill(t *testing.T) {
	t.Parallel()
	const eachRound = 120
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(self, t.TempDir(), false)
	t.Cleanup(f.cast.End)
	k := &killer{t: t, fleet: f, acked: map[string]string{}}
	k.do(func(ctx context.Context) error {
		for _, p := range f.cast.Members {
			if err := f.start(ctx, p); err != nil {
				return err
			}
		}
		return f.awaitReady(ctx)
	})
	n := procstest.Kills(t)
	for round := 1; round <= n; round++ {
		k.do(func(ctx context.Context) error { return k.round(ctx, round, round*eachRound) })
	}
	k.do(func(ctx context.Context) error { return k.readAll(ctx, f.cast.Members[0]) })

	a, err := auditFile(f.ledger(), n*eachRound)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.err(); err != nil {
		t.Errorf("after %d kills: %v: missing %v, twice %v, late %v", n, err, a.missing, a.twice, a.late)
	}
	t.Logf("%d kills, %d acknowledged writes, %d charges, slowest takeover %v", n, len(k.acked), len(a.charges), k.slowest)
}

// killer kills again and again, and remembers what was acknowledged.
type killer struct {
	t       *testing.T
	fleet   *fleet
	acked   map[string]string // by key
	slowest time.Duration     // from a kill until its last shard was taken over
}

// do bounds a step of the test.
func (k *killer) do(step func(context.Context) error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := step(ctx); err != nil {
		k.t.Fatal(err)
	}
}

// round kills the owner of most shards while all processes bill and write, and starts it again.
func (k *killer) round(ctx context.Context, round, customers int) error {
	f := k.fleet
	if err := f.until(ctx, "all shards to be owned", func() bool { return len(f.shards) == shards }); err != nil {
		return err
	}
	if err := f.tellAll(order{Do: doBill, Customers: customers}); err != nil {
		return err
	}
	victim := f.busiest()
	writes, err := k.write(round)
	if err != nil {
		return err
	}
	before := f.ownerships(victim)
	if len(before) < shards/3 {
		return fmt.Errorf("round %d: the victim owns %d shards, want a third of %d", round, len(before), shards)
	}
	if err := f.until(ctx, "charges before the kill", func() bool { return len(f.billed) >= customers-90 }); err != nil {
		return err
	}
	before = f.ownerships(victim)
	killed := time.Now()
	if err := victim.Kill(); err != nil {
		return err
	}
	if err := f.until(ctx, "takeover", func() bool { return f.takenOver(before) }); err != nil {
		return fmt.Errorf("round %d: %w", round, err)
	}
	k.slowest = max(k.slowest, time.Since(killed))
	if err := f.until(ctx, "answers of the living", func() bool { return k.answered(writes, victim) }); err != nil {
		return fmt.Errorf("round %d: %w", round, err)
	}
	k.keepAcked(writes)
	if err := f.restart(ctx, victim); err != nil {
		return err
	}
	if err := f.tellAll(order{Do: doBill, Customers: customers}); err != nil {
		return err
	}
	if err := f.awaitReady(ctx); err != nil {
		return fmt.Errorf("round %d: %w", round, err)
	}
	if err := k.readAll(ctx, victim); err != nil {
		return fmt.Errorf("round %d: %w", round, err)
	}
	return f.until(ctx, "all charges", func() bool { return len(f.billed) >= customers })
}

// write has every process write keys of its own in all shards.
func (k *killer) write(round int) (writer map[string]*procs.Member, err error) {
	writer = map[string]*procs.Member{}
	for i := range 32 {
		for _, p := range k.fleet.cast.Members {
			key := fmt.Sprintf("round-%d/%s/%d", round, p.Name, i)
			writer[key] = p
			if err := p.Tell(order{Do: doPut, Key: key, Value: "of " + key, Within: patience}); err != nil {
				return nil, err
			}
		}
	}
	return writer, nil
}

// answered tells whether each write has an answer, but for those of the process that was killed.
func (k *killer) answered(writer map[string]*procs.Member, killed *procs.Member) bool {
	for key, p := range writer {
		if p != killed && k.fleet.last[topic{wrote, key}].from == nil {
			return false
		}
	}
	return true
}

func (k *killer) keepAcked(writer map[string]*procs.Member) {
	for key, p := range writer {
		switch r := k.fleet.last[topic{wrote, key}]; {
		case r.from == p && r.Err == "":
			k.acked[key] = r.Value
		case r.from == p:
			k.t.Logf("put of %s: %s", key, r.Err)
		}
	}
}

// readAll reads every acknowledged write through p.
func (k *killer) readAll(ctx context.Context, p *procs.Member) error {
	for key, want := range k.acked {
		t := topic{read, key}
		if err := k.fleet.ask(ctx, p, order{Do: doGet, Key: key, Within: patience}, t); err != nil {
			return err
		}
		if got := k.fleet.last[t]; got.Value != want {
			return fmt.Errorf("acknowledged write is lost: %s reads %q under %s, want %q (%s)", p.Name, got.Value, key, want, got.Err)
		}
	}
	return nil
}
