package node_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// Classes of methods. A method that may change the state of a shard is guarded, or gives something back, which no guard may refuse.
const (
	local   = "local"
	reads   = "reads"
	guarded = "guarded"
	returns = "gives back"
)

// classes is what every exported method of a handle does. A new method must be entered here, and a guarded one tried below.
func classes() map[any]map[string]string {
	hold := func(more map[string]string) map[string]string {
		for _, name := range []string{"Token", "Check", "Done", "Context"} {
			more[name] = local
		}
		return more
	}
	return map[any]map[string]string{
		&node.Shard{}: {
			"ID": local, "Owned": local, "Guarded": local, "In": local, "Stale": local,
			"Get": reads, "List": reads, "Watch": reads, "History": reads, "Locks": reads, "Observe": reads, "Jobs": reads,
			"Put": guarded, "Delete": guarded, "CompareAndSwap": guarded, "Txn": guarded, "Update": guarded, "Add": guarded, "DeletePrefix": guarded,
			"Lock": guarded, "TryLock": guarded, "RLock": guarded, "LockAll": guarded, "Semaphore": guarded, "SetPermits": guarded,
			"ForceRelease": guarded, "RequestRevoke": guarded, "Campaign": guarded, "Lead": guarded, "RunOnce": guarded, "ForgetJob": guarded, "Session": guarded,
		},
		&node.Lock{}:       hold(map[string]string{"Revoked": local, "Unlock": returns}),
		&node.Permit{}:     hold(map[string]string{"Release": returns}),
		&node.Leadership{}: hold(map[string]string{"Proclaim": guarded, "Transfer": guarded, "Resign": returns}),
		&node.Run{}:        hold(map[string]string{"Attempt": local}),
		&node.Session{}:    hold(map[string]string{"Close": returns}),
		node.Ownership{}:   hold(map[string]string{"Shard": local}),
	}
}

// writes are all guarded methods of a Shard, called so that they would change something.
func writes(ctx context.Context, token node.Token) map[string]func(*node.Shard) error {
	return map[string]func(*node.Shard) error{
		"Put":    func(s *node.Shard) error { _, err := s.Put(ctx, "k", []byte("fenced"), nil); return err },
		"Delete": func(s *node.Shard) error { _, err := s.Delete(ctx, "k"); return err },
		"CompareAndSwap": func(s *node.Shard) error {
			_, err := s.CompareAndSwap(ctx, "new", 0, []byte("fenced"), nil)
			return err
		},
		"Put, with a TTL": func(s *node.Shard) error {
			_, err := s.Put(ctx, "new", nil, &node.PutOptions{TTL: time.Minute})
			return err
		},
		"Put, ephemeral": func(s *node.Shard) error {
			_, err := s.Put(ctx, "new", nil, &node.PutOptions{Ephemeral: true})
			return err
		},
		"Txn": func(s *node.Shard) error {
			_, err := s.Txn(ctx, node.Txn{Then: []node.Op{node.PutOp("new", nil, nil), node.DeleteOp("k")}})
			return err
		},
		"Update": func(s *node.Shard) error {
			_, err := s.Update(ctx, "k", func([]byte) ([]byte, error) { return []byte("fenced"), nil })
			return err
		},
		"Add":          func(s *node.Shard) error { _, err := s.Add(ctx, "new", 1); return err },
		"DeletePrefix": func(s *node.Shard) error { _, _, err := s.DeletePrefix(ctx, ""); return err },
		"Lock":         func(s *node.Shard) error { _, err := s.Lock(ctx, "free", nil); return err },
		"Lock, queued": func(s *node.Shard) error { _, err := s.Lock(ctx, "held", nil); return err },
		"Lock, own session": func(s *node.Shard) error {
			_, err := s.Lock(ctx, "free", &node.LockOptions{TTL: time.Minute})
			return err
		},
		"TryLock":       func(s *node.Shard) error { _, err := s.TryLock(ctx, "free", nil); return err },
		"RLock":         func(s *node.Shard) error { _, err := s.RLock(ctx, "free", nil); return err },
		"LockAll":       func(s *node.Shard) error { _, err := s.LockAll(ctx, []string{"free", "free2"}, nil); return err },
		"Semaphore":     func(s *node.Shard) error { _, err := s.Semaphore(ctx, "permits", 3, nil); return err },
		"SetPermits":    func(s *node.Shard) error { return s.SetPermits(ctx, "permits", 5) },
		"ForceRelease":  func(s *node.Shard) error { return s.ForceRelease(ctx, "held", token) },
		"RequestRevoke": func(s *node.Shard) error { return s.RequestRevoke(ctx, "held") },
		"Campaign":      func(s *node.Shard) error { _, err := s.Campaign(ctx, "free", nil); return err },
		"Lead": func(s *node.Shard) error {
			return s.Lead(ctx, "free", func(context.Context, *node.Leadership) error { return nil })
		},
		"RunOnce": func(s *node.Shard) error {
			_, err := s.RunOnce(ctx, "free", nil, func(context.Context, *node.Run) ([]byte, error) { return nil, nil })
			return err
		},
		"ForgetJob": func(s *node.Shard) error { return s.ForgetJob(ctx, "done") },
		"Session":   func(s *node.Shard) error { _, err := s.Session(ctx, 0); return err },
	}
}

// visible is what others see of a shard.
func visible(t *testing.T, s *node.Shard) string {
	t.Helper()
	var b strings.Builder
	for _, key := range []string{"k", "new"} {
		rec, err := s.Get(t.Context(), key)
		fmt.Fprintf(&b, "%s=%q at %d, %v\n", key, rec.Value, rec.Mod, err != nil)
	}
	for info, err := range s.Locks(t.Context(), "") {
		fmt.Fprintf(&b, "%s: permits %d, waiting %d, %v;", info.Name, info.Permits, info.Waiting, err)
		for _, h := range info.Holders {
			fmt.Fprintf(&b, " %d", h.Token)
		}
		b.WriteByte('\n')
	}
	for info, err := range s.Jobs(t.Context(), "") {
		fmt.Fprintf(&b, "job %s: %v, attempt %d, %v\n", info.Name, info.State, info.Attempt, err)
	}
	for l, err := range s.Observe(t.Context(), "free") {
		fmt.Fprintf(&b, "leader %d, %v\n", l.Token, err)
		break
	}
	return b.String()
}

// Every method of every handle is classified, so that a new one cannot be forgotten, and every guarded one of a Shard is tried by the
// test below: case 132.
func TestCase132_EveryMethodIsClassified(t *testing.T) {
	for handle, class := range classes() {
		typ := reflect.TypeOf(handle)
		var got []string
		for i := range typ.NumMethod() {
			got = append(got, typ.Method(i).Name)
		}
		var want []string
		for name := range class {
			want = append(want, name)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("methods of %v: enter what is new in classes, and in writes if it changes anything (-classified +there):\n%s", typ, diff)
		}
	}
	tried := writes(t.Context(), 0)
	for name, class := range classes() {
		if _, ok := name.(*node.Shard); !ok {
			continue
		}
		for method, c := range class {
			if _, ok := tried[method]; ok != (c == guarded) {
				t.Errorf("Shard.%s is %s: tried through an outdated view: %v", method, c, ok)
			}
		}
	}
}

// No method that changes anything does so through a view that is guarded by an outdated hold, whatever kind the hold was of: it is ErrFenced, and
// nobody sees a change: case 132.
func TestCase132_OutdatedGuardsChangeNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := within(t, 10*time.Minute)
		former := c.AwaitOwner(1)
		old, ok := c.Node(former).ShardAt(1).Owned()
		if !ok {
			t.Fatal("the owner lost the shard: the test tests nothing")
		}
		c.Isolate(former)
		time.Sleep(8 * time.Second)
		c.Heal()
		c.AwaitReady()
		time.Sleep(30 * time.Second)
		guards := map[string]node.Hold{"Ownership": old}
		i := others(c, c.AwaitOwner(1))[0]
		s := c.Node(i).ShardAt(1)
		for _, k := range kindsOfHolds() {
			h, err := k.acquire(ctx, s, k.name)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			for name, write := range map[string]func(*node.Shard) error{"Put": writes(ctx, 0)["Put"], "Delete": writes(ctx, 0)["Delete"]} {
				if err := write(s.Guarded(h.Hold)); err != nil {
					t.Errorf("%s guarded by a current %s: %v", name, k.name, err)
				}
			}
			if err := h.release(ctx); err != nil {
				t.Fatalf("%s: release: %v", k.name, err)
			}
			guards[k.name] = h.Hold
		}
		mustPut(t, s, "k", "v")
		l := mustLock(t, s, "held")
		if _, err := s.Semaphore(ctx, "permits", 3, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.RunOnce(ctx, "done", nil, func(context.Context, *node.Run) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		before := visible(t, s)
		for kind, h := range guards {
			for name, write := range writes(ctx, l.Token()) {
				wantErr(t, name+" guarded by an outdated "+kind, write(s.Guarded(h)), node.ErrFenced)
				wantErr(t, name+" guarded by a current lock and an outdated "+kind, write(s.Guarded(l).Guarded(h)), node.ErrFenced)
			}
		}
		time.Sleep(time.Second)
		if after := visible(t, s); after != before {
			t.Errorf("outdated guards changed\n%sto\n%s", before, after)
		}
		select {
		case <-l.Revoked():
			t.Error("an outdated guard revoked a lock")
		default:
		}
	})
}

// What was acquired through a guarded view stays guarded: once the guard is outdated Proclaim, Transfer and the record of a run are refused and change
// nothing; to give back is not: case 132.
func TestCase132_GrantsKeepTheirGuards(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *nodetest.Cluster) {
		ctx := within(t, 10*time.Minute)
		i := others(c, c.AwaitOwner(1))[0]
		s, other := c.Node(i).ShardAt(1), c.Node(c.AwaitOwner(1)).ShardAt(1)
		g := mustLock(t, s, "guard")
		v := s.Guarded(g)
		led, err := v.Campaign(ctx, "e", []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := v.Semaphore(ctx, "p", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := led.Proclaim(ctx, []byte("second")); err != nil {
			t.Errorf("proclaim under a current guard: %v", err)
		}
		next := make(chan *node.Leadership, 1)
		go func() { // stops when it leads
			l, err := other.Campaign(ctx, "e", []byte("next"))
			if err != nil {
				t.Errorf("campaign: %v", err)
			}
			next <- l
		}()
		time.Sleep(time.Second)
		_, err = v.RunOnce(ctx, "job", nil, func(context.Context, *node.Run) ([]byte, error) {
			if err := g.Unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
			return []byte("fenced"), nil
		})
		wantErr(t, "record of a run", err, node.ErrFenced)
		if _, err := other.RunOnce(within(t, time.Second), "job", nil, func(_ context.Context, r *node.Run) ([]byte, error) { return nil, nil }); err != nil {
			t.Errorf("the job after a refused record: %v", err)
		}
		wantErr(t, "proclaim", led.Proclaim(ctx, []byte("fenced")), node.ErrFenced)
		wantErr(t, "transfer", led.Transfer(ctx, c.Node(c.AwaitOwner(1)).ID()), node.ErrFenced)
		for l := range other.Observe(ctx, "e") {
			if l.Token != led.Token() || string(l.Value) != "second" {
				t.Errorf("after refused changes token %d leads with %q, want %d with second", l.Token, l.Value, led.Token())
			}
			break
		}
		if err := led.Resign(ctx); err != nil {
			t.Errorf("resign: %v", err)
		}
		if err := p.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
		if l := <-next; l != nil && l.Token() <= led.Token() {
			t.Errorf("token of the next: got %d after %d", l.Token(), led.Token())
		}
	})
}
