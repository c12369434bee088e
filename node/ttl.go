package node

import (
	"context"
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/owner"
)

const (
	ttlRetry = time.Second // after which an operation whose outcome is not known is proposed again
	minAging = time.Second // less age than that is not worth an entry
)

// ttls are the records with a TTL, as the shard's owner times them: from their last write, or, at a new owner, from when it began, less
// the age on record. It records ages at every quarter of the TTL and before a hand-over, so that changes of owner cannot keep a record for ever.
type ttls struct {
	o    *ownership
	wake chan struct{} // has an element after something became due before all else

	mu    sync.Mutex // guards the fields below
	m     map[string]*ttl
	order agenda[*ttl]
}

// ttl is one record with a TTL.
type ttl struct {
	key    string
	mod    Revision
	length time.Duration
	age    time.Duration // that is on record
	since  time.Duration // when it had that age
	timing               // of what is to be done: its age recorded, or its end
}

// end is when its time is over.
func (x *ttl) end() time.Duration { return x.since + owner.Stretch(x.length-min(x.age, x.length)) }

// aged notes that its present age is on record, or is about to be.
func (x *ttl) aged(now time.Duration) {
	x.age, x.since = x.age+now-x.since, now
}

// next is when something is to be done.
func (x *ttl) next() time.Duration { return min(x.end(), x.since+max(x.length/4, minAging)) }

func (t *ttls) init(o *ownership) { t.o, t.wake, t.m = o, make(chan struct{}, 1), map[string]*ttl{} }

// loop ends records whose time has run out, until ctx ends with the ownership. While there is nothing to do it sleeps.
func (t *ttls) loop(ctx context.Context) {
	t.load()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			expired, aged := t.due(t.o.l.now())
			if len(expired) == 0 && len(aged) == 0 {
				break
			}
			t.end(ctx, expired)
			t.record(ctx, aged)
		}
		if d, ok := t.next(t.o.l.now()); ok {
			timer.Reset(d)
		}
	}
}

// end removes records. What it does not get done is due again.
func (t *ttls) end(ctx context.Context, expired []*fsmpb.RecordRef) {
	if len(expired) == 0 {
		return
	}
	res, err := t.o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_ExpireRecords{ExpireRecords: &fsmpb.ExpireRecords{Records: expired}}})
	if err != nil || res.GetStatus() != fsmpb.Result_OK || res.GetMore() {
		return // what is gone has been dropped when that was applied
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range expired { // gone: removed, or changed since, which has entered it anew
		if x := t.m[string(r.GetKey())]; x != nil && uint64(x.mod) == r.GetMod() {
			t.dropLocked(x)
		}
	}
}

// record records ages. What it does not get done makes records live longer under the next owner.
func (t *ttls) record(ctx context.Context, aged []*fsmpb.RecordRef) {
	if len(aged) > 0 {
		_, _ = t.o.submit(ctx, &fsmpb.Op{Kind: &fsmpb.Op_AgeRecords{AgeRecords: &fsmpb.AgeRecords{Records: aged}}})
	}
}

// next is how long the loop may sleep, if there is anything to wait for.
func (t *ttls) next(now time.Duration) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.order.next()
	if at == never {
		return 0, false
	}
	return max(at-now, 0), true
}

// load enters the records that were there when the ownership began. What was written since is entered already; what was removed since is
// found out when it is due.
func (t *ttls) load() {
	now := t.o.l.now()
	t.o.l.machine.Load().Expiring(func(r fsm.Timed, err error) bool {
		if err != nil { // the state cannot be read: the machine fails at its next entry
			t.o.l.g.n.log.Error("records with a TTL cannot be read", "shard", t.o.l.g.id, "err", err)
			return false
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if x := t.m[string(r.Key)]; x == nil || x.mod < r.Mod {
			t.enterLocked(string(r.Key), r.Mod, r.TTL, r.Age, now)
		}
		return true
	})
}

func (t *ttls) dropLocked(x *ttl) {
	t.order.remove(x)
	delete(t.m, x.key)
}

// changed is called from an apply worker, for each record that changed.
func (t *ttls) changed(e fsm.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.m[string(e.Name)]; x != nil {
		t.dropLocked(x)
	}
	if e.TTL > 0 {
		t.enterLocked(string(e.Name), e.Revision, e.TTL, 0, t.o.l.now())
	}
}

func (t *ttls) enterLocked(key string, mod Revision, length, age, now time.Duration) {
	if old := t.m[key]; old != nil {
		t.dropLocked(old)
	}
	x := &ttl{key: key, mod: mod, length: length, age: age, since: now}
	t.m[key] = x
	first := t.order.next()
	t.order.put(x, x.next())
	if x.at < first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// due are the records to remove, and those whose age is to be recorded. Each is returned again after a while if it is still there.
func (t *ttls) due(now time.Duration) (expired, aged []*fsmpb.RecordRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(expired)+len(aged) < pageRecords {
		x, ok := t.order.due(now)
		if !ok {
			break
		}
		ref := &fsmpb.RecordRef{Key: []byte(x.key), Mod: uint64(x.mod)}
		if now < x.end() {
			x.aged(now)
			ref.Age = int64(x.age)
			aged = append(aged, ref)
			t.order.put(x, x.next())
		} else {
			expired = append(expired, ref)
			t.order.put(x, now+ttlRetry)
		}
	}
	return expired, aged
}

// ages are the records whose age is worth recording before the shard is handed over.
func (t *ttls) ages(now time.Duration) (refs []*fsmpb.RecordRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.m {
		if now-x.since >= minAging && len(refs) < fsm.MaxRefs {
			refs = append(refs, &fsmpb.RecordRef{Key: []byte(x.key), Mod: uint64(x.mod), Age: int64(x.age + now - x.since)})
		}
	}
	return refs
}
