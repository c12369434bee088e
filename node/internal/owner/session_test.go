package owner

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Under a new token every session is cold, and what the state machine knew of its silence counts (DESIGN.md 6).
func TestAdopted(t *testing.T) {
	want := Session{TTL: 1000, Renewed: 4700}
	if got := Adopted(1000, 300, 5000); got != want {
		t.Errorf("Adopted(1000, 300, 5000): got %+v, want %+v", got, want)
	}
}

// An owner ends a session a TTL and its margin after the last renewal, or after its claim less the silence known then.
func TestSessionDeadline(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Session
		want time.Duration
	}{
		{"Renewed", Session{TTL: 1000, Renewed: 5000}, 6011},
		{"Adopted", Adopted(1000, 0, 5000), 6011},
		{"AdoptedSilent", Adopted(1000, 300, 5000), 5711},
		{"AdoptedSilentToTheLimit", Adopted(1000, 1011, 5000), 5000},
	} {
		if got := SessionDeadline(c.s); got != c.want {
			t.Errorf("%s: SessionDeadline(%+v): got %d, want %d", c.name, c.s, got, c.want)
		}
	}
}

// Hot sessions are renewed in memory and only under a good lease, any other through the log, and none whose end was proposed.
func TestRenew(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Session
		good bool
		want How
	}{
		{"Hot", Session{Hot: true}, true, InMemory},
		{"Cold", Session{}, true, InLog},
		{"HotLeaseLapsed", Session{Hot: true}, false, Refuse},
		{"ColdLeaseLapsed", Session{}, false, Refuse},
		{"HotExpiring", Session{Hot: true, Expiring: true}, true, Refuse},
		{"ColdExpiring", Session{Expiring: true}, true, Refuse},
		{"ColdRenewing", Session{Renewing: true}, true, InLog},
	} {
		if got := Renew(c.s, c.good); got != c.want {
			t.Errorf("%s: Renew(%+v, %v): got %d, want %d", c.name, c.s, c.good, got, c.want)
		}
	}
}

// A renewal moves the deadline on, never back; one that was applied makes the session hot.
func TestAfterRenewal(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Session
		how  How
		now  time.Duration
		want Session
	}{
		{"InMemory", Session{TTL: 9, Renewed: 5, Hot: true}, InMemory, 8, Session{TTL: 9, Renewed: 8, Hot: true}},
		{"InLog", Session{TTL: 9, Renewed: 5}, InLog, 8, Session{TTL: 9, Renewed: 8, Hot: true}},
		{"Backward", Session{TTL: 9, Renewed: 5, Hot: true}, InMemory, 3, Session{TTL: 9, Renewed: 5, Hot: true}},
	} {
		if got := AfterRenewal(c.s, c.how, c.now); got != c.want {
			t.Errorf("%s: AfterRenewal(%+v, %d, %d): got %+v, want %+v", c.name, c.s, c.how, c.now, got, c.want)
		}
	}
}

// A session's end is proposed at its deadline, later by what the owner's loop was late, once, and not while a renewal is on
// its way through the log.
func TestExpires(t *testing.T) {
	s := Session{TTL: 1000, Renewed: 5000}
	renewing, expiring := s, s
	renewing.Renewing, expiring.Expiring = true, true
	for _, c := range []struct {
		name      string
		s         Session
		now, late time.Duration
		want      bool
	}{
		{"Before", s, 6010, 0, false},
		{"AtTheDeadline", s, 6011, 0, true},
		{"LateLoop", s, 6011, 5, false},
		{"LateLoopCaughtUp", s, 6016, 5, true},
		{"Renewing", renewing, 9000, 0, false},
		{"Expiring", expiring, 9000, 0, false},
	} {
		if got := Expires(c.s, c.now, c.late); got != c.want {
			t.Errorf("%s: Expires(%+v, %d, %d): got %v, want %v", c.name, c.s, c.now, c.late, got, c.want)
		}
	}
}

// A checkpoint is due after half the TTL, for hot sessions whose end was not proposed; from then on it is cold: once.
func TestCheckpoints(t *testing.T) {
	hot := Session{TTL: 1000, Renewed: 5000, Hot: true}
	expiring := hot
	expiring.Expiring = true
	for _, c := range []struct {
		name string
		s    Session
		now  time.Duration
		want bool
	}{
		{"Before", hot, 5499, false},
		{"AfterHalf", hot, 5500, true},
		{"Cold", Session{TTL: 1000, Renewed: 5000}, 5900, false},
		{"Expiring", expiring, 5900, false},
		{"Twice", Checkpointing(hot), 5900, false},
	} {
		if got := Checkpoints(c.s, c.now); got != c.want {
			t.Errorf("%s: Checkpoints(%+v, %d): got %v, want %v", c.name, c.s, c.now, got, c.want)
		}
	}
}

// From the proposing of a checkpoint on, renewals go through the log.
func TestCheckpointing(t *testing.T) {
	s := Checkpointing(Session{TTL: 1000, Renewed: 5000, Hot: true})
	if want := (Session{TTL: 1000, Renewed: 5000}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	if got := Renew(s, true); got != InLog {
		t.Errorf("renewed by way %d, want %d", got, InLog)
	}
}

// A checkpoint records no more silence than there was.
func TestSilence(t *testing.T) {
	s := Session{TTL: 1000, Renewed: 5000}
	for _, c := range []struct{ now, want time.Duration }{{5300, 300}, {5000, 0}, {4000, 0}} {
		if got := Silence(s, c.now); got != c.want {
			t.Errorf("Silence(%+v, %d): got %d, want %d", s, c.now, got, c.want)
		}
	}
}

// Nothing is due before the next look, whatever state a session is in, and at it something is.
func TestNextLook(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		s := Session{TTL: time.Duration(1 + rng.Int64N(1000)), Renewed: time.Duration(rng.Int64N(1000)), Hot: rng.IntN(2) == 0, Renewing: rng.IntN(4) == 0, Expiring: rng.IntN(4) == 0}
		late := time.Duration(rng.Int64N(3) * 100)
		at := NextLook(s, late)
		if before := at - 1; Expires(s, before, late) || Checkpoints(s, before) {
			t.Fatalf("NextLook(%+v, %d) = %d: something is due before", s, late, at)
		}
		if !Expires(s, at, late) && !Checkpoints(s, at) && !s.Renewing && !s.Expiring {
			t.Fatalf("NextLook(%+v, %d) = %d: nothing is due then", s, late, at)
		}
	}
}

// Lateness only puts a session's end off, by just so much: what the model shows of an owner that is never late holds of every one.
func TestExpires_LatenessPutsOff(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	span := func() time.Duration { return time.Duration(rng.Int64N(int64(time.Hour))) }
	for range 100_000 {
		s := Session{TTL: 1 + span(), Renewed: span(), Renewing: rng.IntN(8) == 0, Expiring: rng.IntN(8) == 0}
		now, late := SessionDeadline(s)+span()-span(), span()
		if Expires(s, now, late) != Expires(s, now-late, 0) || Expires(s, now, late) && !Expires(s, now, 0) {
			t.Fatalf("%+v at %v: ends %v when late by %v, %v when never", s, now, Expires(s, now, late), late, Expires(s, now, 0))
		}
	}
}
