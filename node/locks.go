package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// Bounds of one answer of an owner that lists something: how many, and about how many bytes.
const (
	locksPage   = 256
	pageBytes   = 1 << 20
	locksQueued = 10_000 // waiters of one lock
	partyBytes  = 64     // of a holder or waiter without its value
)

// A LockParty is a holder of a lock, or one that waits for it, which has no token.
type LockParty struct {
	Member Member
	Token  Token
	Age    time.Duration // since it was granted, or asked for it, at least: an owner knows only of its own time
	Value  []byte
	Shared bool // by RLock
}

// LockInfo is a lock or semaphore as it stands. Permits is 0 for a lock.
type LockInfo struct {
	Name    string
	Permits int
	Holders []LockParty
	Waiters []LockParty // first come first, at most 10,000
	Waiting int         // how many wait
}

// Locks yields the locks and semaphores of the shard whose names begin with prefix and that somebody holds or waits for, in the order of names. Each page
// of up to 256 is of one instant, under a good lease. Of a lock whose values are longer than 1 MiB in all some are left out. An error ends it and
// comes last: ErrNoQuorum, ErrClosed.
func (s *Shard) Locks(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		after := ""
		for {
			page, err := s.locks(ctx, prefix, after)
			if err != nil {
				yield(LockInfo{}, err)
				return
			}
			for _, l := range page.GetLocks() {
				if !yield(s.n.lockInfo(l), nil) {
					return
				}
				after = string(l.GetName())
			}
			if !page.GetMore() {
				return
			}
		}
	}
}

func (s *Shard) locks(ctx context.Context, prefix, after string) (*wire.LocksPage, error) {
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return nil, err
	}
	reply, _, err := g.ask(ctx, "list locks", &wire.OwnerRequest{Ask: &wire.OwnerRequest_ListLocks{ListLocks: &wire.ListLocks{Prefix: []byte(prefix), After: []byte(after)}}})
	return reply.GetLocks(), err
}

// locks is one page of the locks that somebody holds or waits for.
func (o *ownership) locks(q *wire.ListLocks) *wire.LocksPage {
	page := &wire.LocksPage{}
	found := o.l.machine.Load().Locks(fsmpb.Lock_LOCK, string(q.GetPrefix()), string(q.GetAfter()), locksPage)
	room := pageBytes
	for _, l := range found {
		if len(page.Locks) > 0 && listed(l) > room {
			break
		}
		info := &wire.LockInfo{Name: []byte(l.Name), Permits: l.Permits, Waiting: uint32(len(l.Waiters))}
		info.Holders = o.parties(l.Holders, &room)
		info.Waiters = o.parties(l.Waiters[:min(len(l.Waiters), locksQueued)], &room)
		page.Locks = append(page.Locks, info)
	}
	page.More = len(page.Locks) < len(found) || len(found) == locksPage
	return page
}

// listed is about how long a lock is in an answer.
func listed(l fsm.LockState) int {
	n := partyBytes + len(l.Name)
	for _, c := range append(slices.Clip(l.Holders), l.Waiters...) {
		n += partyBytes + len(c.Value)
	}
	return n
}

// parties describes holders or waiters, with values as long as there is room.
func (o *ownership) parties(cs []fsm.Claimant, room *int) []*wire.LockParty {
	now := o.l.now()
	var out []*wire.LockParty
	for _, c := range cs {
		p := &wire.LockParty{
			Node:   c.Node,
			Token:  uint64(c.Token),
			Age:    int64(now - o.ages.since(waitKey{c.Session, c.Seq}, o.since)),
			Shared: c.Mode == fsmpb.Lock_SHARED,
		}
		if *room -= partyBytes + len(c.Value); *room >= 0 {
			p.Value = c.Value
		}
		out = append(out, p)
	}
	return out
}

func (n *Node) lockInfo(l *wire.LockInfo) LockInfo {
	parties := func(ps []*wire.LockParty) []LockParty {
		var out []LockParty
		for _, p := range ps {
			out = append(out, LockParty{Member: n.memberOf(p.GetNode()), Token: Token(p.GetToken()), Age: time.Duration(p.GetAge()), Value: p.GetValue(), Shared: p.GetShared()})
		}
		return out
	}
	return LockInfo{Name: string(l.GetName()), Permits: int(l.GetPermits()), Holders: parties(l.GetHolders()), Waiters: parties(l.GetWaiters()), Waiting: int(l.GetWaiting())}
}

// ForceRelease ends the grant of name that has the token t, whoever holds it and whatever it is: a lock, a permit, a leadership or a run, since no
// two grants of a shard have one token. It is an operator's last resort: Locks and Observe tell the token. The holder hears of it within a
// round trip, if it can be reached, but may be in the middle of its work: only a check of tokens at the resource keeps it out. ErrNotHeld:
// there is no such grant. Other errors are those of Put.
func (s *Shard) ForceRelease(ctx context.Context, name string, t Token) error {
	if err := checkName("force release", name); err != nil {
		return err
	}
	var err error
	for _, kind := range []fsmpb.Lock_Kind{fsmpb.Lock_LOCK, fsmpb.Lock_ELECTION, fsmpb.Lock_JOB} {
		var res *fsmpb.Result
		res, err = s.write(ctx, "force release", &fsmpb.Op{Kind: &fsmpb.Op_Force{Force: &fsmpb.Force{Kind: kind, Name: []byte(name), Token: uint64(t)}}})
		if err = heldOr("force release", name, res, err); !errors.Is(err, ErrNotHeld) {
			return err
		}
	}
	return err
}

// RequestRevoke asks the present holders of the lock name to give it up: their Lock.Revoked is closed. It takes nothing from them. ErrNotHeld: there is
// none. Other errors are those of Put.
func (s *Shard) RequestRevoke(ctx context.Context, name string) error {
	if err := checkName("request revoke", name); err != nil {
		return err
	}
	res, err := s.write(ctx, "request revoke", &fsmpb.Op{Kind: &fsmpb.Op_RequestRevoke{RequestRevoke: &fsmpb.RequestRevoke{Name: []byte(name)}}})
	return heldOr("request revoke", name, res, err)
}

func heldOr(what, name string, res *fsmpb.Result, err error) error {
	if err == nil && res.GetStatus() == fsmpb.Result_NOT_HELD {
		return fmt.Errorf("%s of %q: %w", what, name, ErrNotHeld)
	}
	return err
}
