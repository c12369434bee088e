package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/nodetest"
)

// store is three keys and a counter, as a model: an absent key is empty.
type store struct {
	keys    [3]string
	counter int64
}

// step is one operation on the store and what it came to.
type step struct {
	kind    string
	k       int
	value   string
	want    string // of a swap: of key k; it writes value to k and k+1
	swapped bool
	sum     int64
	seen    store
	unknown bool
}

// next are the stores that may follow s; none: the step cannot have had this outcome there.
func (s store) next(x step) []any {
	after := s
	switch x.kind {
	case "put", "guarded":
		after.keys[x.k] = x.value
	case "delete":
		after.keys[x.k] = ""
	case "swap":
		if s.keys[x.k] == x.want {
			after.keys[x.k], after.keys[(x.k+1)%3] = x.value, x.value
		}
		if !x.unknown && x.swapped != (s.keys[x.k] == x.want) {
			return nil
		}
	case "add":
		after.counter++
		if !x.unknown && x.sum != after.counter {
			return nil
		}
	case "get":
		if s.keys[x.k] != x.value {
			return nil
		}
	case "list":
		if s != x.seen {
			return nil
		}
	}
	if x.unknown {
		return []any{s, after}
	}
	return []any{after}
}

// do runs a random operation. It returns false if nothing was done.
func do(ctx context.Context, s *node.Shard, lock *node.Lock, r *rand.Rand, id string) (x step, done bool) {
	k := r.IntN(3)
	key := "k" + strconv.Itoa(k)
	var err error
	x = step{k: k, value: id}
	switch r.IntN(8) {
	case 0:
		x.kind = "put"
		_, err = s.Put(ctx, key, []byte(id), nil)
	case 1:
		x.kind = "guarded"
		_, err = s.Guarded(lock).Put(ctx, key, []byte(id), nil)
	case 2:
		x.kind = "delete"
		_, err = s.Delete(ctx, key)
	case 3, 4:
		x.kind = "swap"
		var rec node.Record
		if rec, err = s.Get(ctx, key); err != nil && !errors.Is(err, node.ErrNotFound) {
			return x, false
		}
		x.want = string(rec.Value)
		cond := node.ValueIs(key, rec.Value)
		if rec.Mod == 0 {
			cond = node.KeyAbsent(key)
		}
		var res node.TxnResult
		res, err = s.Txn(ctx, node.Txn{
			If:   []node.Cond{cond},
			Then: []node.Op{node.PutOp(key, []byte(id), nil), node.PutOp("k"+strconv.Itoa((k+1)%3), []byte(id), nil)},
		})
		x.swapped = res.Succeeded
	case 5:
		x.kind = "add"
		x.sum, err = s.Add(ctx, "n", 1)
	case 6:
		x.kind = "get"
		var rec node.Record
		rec, err = s.Get(ctx, key)
		if x.value = string(rec.Value); errors.Is(err, node.ErrNotFound) {
			err = nil
		}
	default:
		x.kind = "list"
		x.seen, err = readStore(ctx, s)
	}
	x.unknown = errors.Is(err, node.ErrUnknown) && x.kind != "get" && x.kind != "list"
	return x, err == nil || x.unknown
}

func readStore(ctx context.Context, s *node.Shard) (seen store, err error) {
	l, err := s.List(ctx, "", nil)
	if err != nil {
		return seen, err
	}
	for r, err := range l.All() {
		if err != nil {
			return seen, err
		}
		if r.Key == "n" {
			seen.counter, _ = strconv.ParseInt(string(r.Value), 10, 64)
			continue
		}
		i, _ := strconv.Atoi(r.Key[1:])
		seen.keys[i] = string(r.Value)
	}
	return seen, nil
}

// Reads, listings, writes, transactions and counters, some guarded by a lock, are linearizable together, with kills, pauses and partitions; what is unknown may have
// happened at any time after it began, or never (cases 58, 60 and 62).
func TestCase062_RecordsAreLinearizable(t *testing.T) {
	for seed := range uint64(nightly(2, 40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, 3, &nodetest.Options{Seed: seed}, func(t *testing.T, c *nodetest.Cluster) { linearizable(t, c, seed) })
		})
	}
}

func linearizable(t *testing.T, c *nodetest.Cluster, seed uint64) {
	remote := c.Add(nil)
	c.AwaitReady()
	lock := mustLock(t, c.Node(remote).ShardAt(1), "guard")
	began := time.Now()
	var mu sync.Mutex
	var ops []porcupine.Operation
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for client := range 5 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(1500)) * time.Millisecond):
				}
				running := c.Node(client % c.Len())
				if running == nil {
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+r.IntN(3000))*time.Millisecond)
				called := time.Since(began)
				x, done := do(ctx, running.ShardAt(1), lock, r, fmt.Sprintf("%d.%d", client, n))
				cancel()
				if !done {
					continue
				}
				op := porcupine.Operation{ClientId: client, Input: x, Call: int64(called), Return: int64(time.Since(began))}
				if x.unknown {
					op.Return = int64(1) << 62
				}
				mu.Lock()
				ops = append(ops, op)
				mu.Unlock()
			}
		})
	}
	trouble(c, rand.New(rand.NewPCG(seed, 99)))
	close(stop)
	clients.Wait()
	time.Sleep(10 * time.Second)
	last, err := readStore(within(t, 30*time.Second), c.Node(remote).ShardAt(1))
	if err != nil {
		t.Fatal(err)
	}
	now := int64(time.Since(began))
	ops = append(ops, porcupine.Operation{ClientId: 100, Input: step{kind: "list", seen: last}, Call: now, Return: now + 1})
	model := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{store{}} },
		Step:  func(s, in, _ any) []any { return s.(store).next(in.(step)) },
		Equal: func(a, b any) bool { return a == b },
	}
	if !porcupine.CheckOperations(model.ToModel(), ops) {
		for _, op := range ops {
			t.Logf("%d: %d to %d: %+v", op.ClientId, op.Call, op.Return, op.Input)
		}
		t.Error("the history is not linearizable")
	}
	if len(ops) < 50 {
		t.Errorf("only %d operations had an outcome", len(ops))
	}
}

// trouble kills, pauses and cuts off owners for a while.
func trouble(c *nodetest.Cluster, r *rand.Rand) {
	for range 5 {
		owner := c.AwaitOwner(1)
		switch r.IntN(4) {
		case 0:
			c.Kill(owner)
			time.Sleep(6 * time.Second)
			c.Restart(owner)
		case 1:
			c.Isolate(owner)
			time.Sleep(6 * time.Second)
			c.Heal()
		case 2:
			c.Pause(owner)
			time.Sleep(4 * time.Second)
			c.Resume(owner)
		default:
			c.Shutdown(owner)
			c.Restart(owner)
			time.Sleep(2 * time.Second)
		}
		c.AwaitReady()
	}
}
