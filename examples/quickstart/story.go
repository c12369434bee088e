//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// shards is the default number of node.Config.Shards.
const shards = 16

// The customers that are billed before and after each accident.
const (
	untilKill  = 100
	untilPause = 200
	untilEnd   = 300
)

// A story is the fleet's fate, told on the screen.
type story struct {
	fleet  *fleet
	show   *screen
	killed *procs.Member // which was, and waits to be started again
}

// tell tells all of it. The error is errNotOnce if a customer was not billed exactly once; any other means that the story broke off.
func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.found, s.kill, s.restart, s.pause, s.minority, s.audit,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) found(ctx context.Context) error {
	s.show.title("Three processes find each other")
	begun := time.Now()
	for _, p := range s.fleet.cast.Members {
		if err := s.fleet.start(ctx, p); err != nil {
			return err
		}
		s.show.say("%s runs as process %d and listens on %s", p.Name, p.Pid(), p.Addr)
	}
	if err := s.fleet.awaitReady(ctx); err != nil {
		return err
	}
	if err := s.fleet.until(ctx, "every shard's job to run", func() bool { return len(s.fleet.shards) == shards }); err != nil {
		return err
	}
	s.show.say("After %s they are a cluster. They split the work into %d shards; each shard has one owner:", since(begun), shards)
	s.showOwners()
	s.show.say("An owner has a token, a number that is higher each time a shard changes hands.")
	return nil
}

func (s *story) kill(ctx context.Context) error {
	f := s.fleet
	s.show.title("Billing begins, and a process is killed in the middle of it")
	s.show.say("The job bills %d customers; each process bills those whose shard it owns.", untilKill)
	if err := f.tellAll(order{Do: doBill, Customers: untilKill}); err != nil {
		return err
	}
	victim := f.busiest()
	s.killed = victim
	if err := f.until(ctx, "the first charges", func() bool { return len(f.billed) >= untilKill/4 }); err != nil {
		return err
	}
	before := f.ownerships(victim)
	killed := time.Now()
	if err := victim.Kill(); err != nil {
		return err
	}
	s.show.say("kill -9 %d: %s is gone after %d charges, with %d shards.", victim.Pid(), victim.Name, len(f.billed), len(before))
	if err := f.until(ctx, "a new owner for each of its shards", func() bool { return f.takenOver(before) }); err != nil {
		return err
	}
	s.show.say("The others noticed its silence and took over. After %s each shard has an owner with a higher token:", since(killed))
	s.showTakeover(before, killed)
	return s.untilBilled(ctx, untilKill)
}

func (s *story) restart(ctx context.Context) error {
	f := s.fleet
	s.show.title("The killed process is started again, on its directory")
	p := s.killed
	begun := time.Now()
	if err := f.restart(ctx, p); err != nil {
		return err
	}
	s.show.say("%s runs as process %d", p.Name, p.Pid())
	if err := f.awaitReady(ctx); err != nil {
		return err
	}
	s.show.say("After %s it has caught up, and all three are ready.", since(begun))
	if err := f.until(ctx, "some shards to move back", func() bool { return len(f.owned(p)) >= shards/4 }); err != nil {
		return err
	}
	s.show.say("After %s shards have moved back to it, handed over one by one in good order:", since(begun))
	s.showOwners()
	return nil
}

func (s *story) pause(ctx context.Context) error {
	f := s.fleet
	s.show.title("A process freezes between its last check and its write, and wakes up too late")
	late := f.busiest()
	holding := topic{kind: isHeld}
	delete(f.last, holding)
	if err := late.Tell(order{Do: doHoldNext}); err != nil {
		return err
	}
	if err := f.tellAll(order{Do: doBill, Customers: untilPause}); err != nil {
		return err
	}
	if err := f.until(ctx, late.Name+" to be about to write", func() bool { return f.last[holding].from == late }); err != nil {
		return err
	}
	held := f.last[holding]
	s.show.say("%s owns shard %d under token %d, is about to charge %s …", late.Name, held.Shard, held.Token, held.Customer)
	before := f.ownerships(late)
	frozen := time.Now()
	if err := late.Pause(); err != nil {
		return err
	}
	s.show.say("… and freezes (kill -STOP %d).", late.Pid())
	overtaken := func() bool { return f.billed[held.Customer] > held.Token && f.takenOver(before) }
	if err := f.until(ctx, "another process to charge "+held.Customer, overtaken); err != nil {
		return err
	}
	s.show.say("After %s its lease had run out and %s had taken shard %d over, and charged %s under token %d.",
		since(frozen), f.shards[held.Shard].by.Name, held.Shard, held.Customer, f.billed[held.Customer])
	f.refused = nil
	if err := f.thaw(late); err != nil {
		return err
	}
	s.show.say("Now %s wakes up (kill -CONT %d). It checked before it froze, so it writes.", late.Name, late.Pid())
	if err := s.showLateWrite(ctx, held); err != nil {
		return err
	}
	if err := f.awaitReady(ctx); err != nil {
		return err
	}
	s.show.say("All three are ready again.")
	return s.untilBilled(ctx, untilPause)
}

// showLateWrite waits for what became of a write under an old token.
func (s *story) showLateWrite(ctx context.Context, held report) error {
	f := s.fleet
	refusal := func() bool {
		for _, r := range f.refused {
			if r.Customer == held.Customer && r.Token == held.Token {
				return true
			}
		}
		return false
	}
	written := func() bool { return f.billed[held.Customer] == held.Token }
	if err := f.until(ctx, "the late write", func() bool { return refusal() || written() }); err != nil {
		return err
	}
	if written() {
		s.show.say("Nobody compared tokens: the late charge of %s went through.", held.Customer)
		return nil
	}
	s.show.say("The ledger REFUSED the late charge of %s: token %d is older than one it has seen.", held.Customer, held.Token)
	return nil
}

func (s *story) minority(ctx context.Context) error {
	f := s.fleet
	s.show.title("Two of three freeze, and the third is alone")
	alone := f.busiest()
	held := len(f.holds[alone])
	frozen := time.Now()
	for _, p := range f.cast.Members {
		if p != alone {
			if err := f.freeze(ctx, p); err != nil {
				return err
			}
			s.show.say("kill -STOP %d: %s is frozen.", p.Pid(), p.Name)
		}
	}
	if err := f.until(ctx, alone.Name+" to report its loss", func() bool { return len(f.holds[alone]) == 0 }); err != nil {
		return err
	}
	s.show.say("After %s %s reported that it lost all its %d shards, and ended their jobs.", since(frozen), alone.Name, held)
	if err := s.showRefusals(ctx, alone); err != nil {
		return err
	}
	for _, p := range f.cast.Members {
		if p != alone {
			if err := f.thaw(p); err != nil {
				return err
			}
		}
	}
	woken := time.Now()
	if err := f.awaitReady(ctx); err != nil {
		return err
	}
	s.show.say("The two wake up. After %s all three are ready, and the job bills the last %d customers.", since(woken), untilEnd-untilPause)
	if err := f.tellAll(order{Do: doBill, Customers: untilEnd}); err != nil {
		return err
	}
	return s.untilBilled(ctx, untilEnd)
}

// showRefusals asks the process that is alone to read and to write.
func (s *story) showRefusals(ctx context.Context, alone *procs.Member) error {
	f := s.fleet
	gets, puts := topic{read, "price"}, topic{wrote, "price"}
	if err := f.ask(ctx, alone, order{Do: doGet, Key: "price", Within: 2 * time.Second}, gets); err != nil {
		return err
	}
	if err := f.ask(ctx, alone, order{Do: doPut, Key: "price", Value: "1999", Within: 2 * time.Second}, puts); err != nil {
		return err
	}
	if r := f.last[gets]; !r.NoQuorum {
		return fmt.Errorf("%s answered a read without a majority: %q, %s", alone.Name, r.Value, r.Err)
	}
	s.show.say("Asked to read, it refuses with ErrNoQuorum: %s", f.last[gets].Err)
	switch r := f.last[puts]; {
	case r.NoQuorum:
		s.show.say("Asked to write, it refuses with ErrNoQuorum, too: nothing was written.")
	case r.Unknown:
		s.show.say("Asked to write, it says ErrUnknown: one of the frozen processes has the request in its mailbox.")
	default:
		return fmt.Errorf("%s acknowledged a write without a majority (%s)", alone.Name, r.Err)
	}
	return nil
}

func (s *story) audit(context.Context) error {
	s.show.title("The ledger is read again, from its first line")
	a, err := auditFile(s.fleet.ledger(), untilEnd)
	if err != nil {
		return err
	}
	if err := a.err(); err != nil {
		for _, c := range a.twice {
			s.show.say("%s", a.explain(c))
		}
		for _, c := range a.missing {
			s.show.say("%s: not billed", c)
		}
		s.show.say("FAILED: %v", err)
		return err
	}
	s.show.say("%d customers, %d charges: each customer was billed exactly once.", untilEnd, len(a.charges))
	return nil
}

func (s *story) untilBilled(ctx context.Context, customers int) error {
	f := s.fleet
	if err := f.until(ctx, fmt.Sprintf("%d charges", customers), func() bool { return len(f.billed) >= customers }); err != nil {
		return err
	}
	s.show.say("The job goes on. %d customers are billed.", len(f.billed))
	return nil
}

func (s *story) showOwners() {
	rows := [][]string{{"process", "pid", "owns shards"}}
	for _, p := range s.fleet.cast.Members {
		rows = append(rows, []string{p.Name, fmt.Sprint(p.Pid()), strings.Trim(fmt.Sprint(s.fleet.owned(p)), "[]")})
	}
	s.show.table(rows)
}

func (s *story) showTakeover(before map[int]ownership, from time.Time) {
	rows := [][]string{{"shard", "old owner", "token", "new owner", "token", "after"}}
	for shard := 1; shard <= shards; shard++ {
		if was, ok := before[shard]; ok {
			now := s.fleet.shards[shard]
			rows = append(rows, []string{fmt.Sprint(shard), was.by.Name, fmt.Sprint(was.token), now.by.Name, fmt.Sprint(now.token),
				fmt.Sprint(now.at.Sub(from).Round(10 * time.Millisecond))})
		}
	}
	s.show.table(rows)
}

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }
