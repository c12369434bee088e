package membership

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// told is a table that heard of the members with the given numbers.
func told(t *testing.T, ids ...int) *table {
	t.Helper()
	self := claim{Record: record(1, addrOf(1)), revision: 1}
	tab := newTable(self, coded(t, self))
	for _, i := range ids {
		hear(t, tab, claim{Record: record(i, "10.0.0.2:7400"), revision: 1})
	}
	return tab
}

func coded(t *testing.T, c claim) []byte {
	t.Helper()
	b, err := encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hear(t *testing.T, tab *table, c claim) {
	t.Helper()
	b := coded(t, c)
	if err := tab.vet(c.ID, b); err != nil {
		t.Fatal(err)
	}
	tab.heard(c.ID, b)
}

func state(tab *table, i int) State {
	m, _ := tab.member(uuid(i))
	return m.State
}

func TestTable_State(t *testing.T) {
	// What others say is not enough to be Failed; an own unanswered ping is not either; both are (case 73).
	t.Run("NeedsBothEvidences", func(t *testing.T) {
		for _, order := range [][]func(*table, string){{(*table).gone, (*table).silent}, {(*table).silent, (*table).gone}} {
			tab := told(t, 2)
			var got []State
			for _, f := range order {
				f(tab, uuid(2))
				got = append(got, state(tab, 2))
			}
			if want := []State{Suspect, Failed}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
	// A member that was given up does not count as alive because it answers: it has to clear itself.
	t.Run("AnswerDoesNotRevive", func(t *testing.T) {
		tab := told(t, 2)
		tab.gone(uuid(2))
		tab.answered(uuid(2))
		if got := state(tab, 2); got != Suspect {
			t.Errorf("got %v, want suspect", got)
		}
		hear(t, tab, claim{Record: record(2, addrOf(2)), revision: 1})
		if got := state(tab, 2); got != Alive {
			t.Errorf("after it cleared itself: got %v, want alive", got)
		}
	})
}

func TestTable_Vet(t *testing.T) {
	// A record of an earlier incarnation is refused, and one of an earlier revision changes nothing.
	t.Run("Order", func(t *testing.T) {
		tab := told(t)
		young := claim{Record: record(2, addrOf(2)).again(addrOf(3)), revision: 5}
		hear(t, tab, young)
		if err := tab.vet(uuid(2), coded(t, claim{Record: record(2, addrOf(2)), revision: 9})); !errors.Is(err, errStale) {
			t.Errorf("earlier incarnation: got %v, want %v", err, errStale)
		}
		before := young
		before.revision, before.Addr = 4, addrOf(4)
		hear(t, tab, before)
		if addr, _ := tab.addr(uuid(2)); addr != young.Addr {
			t.Errorf("address: got %s, want %s", addr, young.Addr)
		}
	})
	// A newer record counts at once, but does not say that the node is up: it may be an old rumour.
	t.Run("NewerRecordDoesNotRevive", func(t *testing.T) {
		tab := told(t, 2)
		tab.gone(uuid(2))
		tab.silent(uuid(2))
		next := claim{Record: record(2, addrOf(2)).again(addrOf(9)), revision: 1}
		if err := tab.vet(uuid(2), coded(t, next)); err != nil {
			t.Fatal(err)
		}
		if m, _ := tab.member(uuid(2)); m.State != Failed || m.Addr != addrOf(9) {
			t.Errorf("got %v at %s, want failed at %s", m.State, m.Addr, addrOf(9))
		}
	})
	// What cannot be read is refused, and there is one notice for each sender, however often it comes (case 145).
	t.Run("NonsenseIsLoggedOnce", func(t *testing.T) {
		tab := told(t)
		for range 3 {
			if err := tab.vet(uuid(2), []byte("nonsense")); !errors.Is(err, errMalformed) {
				t.Errorf("got %v, want %v", err, errMalformed)
			}
		}
		for i := range 10 * maxNotices {
			_ = tab.vet(uuid(i+10), nil)
		}
		if n, _ := tab.drain(); len(n) != maxNotices {
			t.Errorf("got %d notices, want %d", len(n), maxNotices)
		}
	})
}

// Of the processes that claim one node the latest start counts, of one start the first that was heard of, whether by gossip or because it
// introduced itself, and no number of strangers changes that.
func TestTable_Admit(t *testing.T) {
	const gossip, hello = "gossip", "hello"
	steps := []struct {
		how         string
		incarnation uint64
		nonce       uint64
		ok          bool
	}{
		{hello, 2, 7, true}, {hello, 2, 7, true}, {hello, 2, 8, false}, {hello, 1, 7, false}, {gossip, 2, 8, false}, {gossip, 1, 9, false},
		{gossip, 2, 7, true}, {gossip, 3, 9, true}, {hello, 3, 9, true}, {hello, 3, 7, false}, {hello, 2, 7, false}, {gossip, 2, 7, false},
		{hello, 5, 1, true}, {gossip, 3, 9, false}, {gossip, 5, 1, true},
	}
	tab := told(t)
	meet := func(how string, incarnation, nonce uint64) bool {
		if how == hello {
			return tab.admit(uuid(2), boot{incarnation, nonce})
		}
		r := record(2, addrOf(2))
		r.Incarnation, r.Nonce = incarnation, nonce
		b := coded(t, claim{Record: r, revision: 1})
		if tab.vet(r.ID, b) != nil {
			return false
		}
		tab.heard(r.ID, b)
		return true
	}
	for _, c := range steps {
		if got := meet(c.how, c.incarnation, c.nonce); got != c.ok {
			t.Errorf("%s of start %d, nonce %d: admitted %v, want %v", c.how, c.incarnation, c.nonce, got, c.ok)
		}
	}
	if m, _ := tab.member(uuid(2)); m.Incarnation != 5 || m.Nonce != 1 {
		t.Errorf("the member is start %d, nonce %d, want 5 and 1", m.Incarnation, m.Nonce)
	}
	for i := range 2 * maxMembers {
		if !tab.admit(uuid(i+10), boot{1, 1}) {
			t.Fatalf("stranger %d was refused", i)
		}
	}
	if meet(hello, 5, 2) {
		t.Error("strangers made it forget a member's process")
	}
	if len(tab.boots) > maxMembers {
		t.Errorf("it remembers %d processes, want at most %d", len(tab.boots), maxMembers)
	}
	if self := tab.self; !tab.admit(self.ID, self.boot()) || tab.admit(self.ID, boot{self.Incarnation, self.Nonce + 1}) || tab.admit(self.ID, boot{self.Incarnation + 1, self.Nonce}) {
		t.Error("of this node itself only this process counts")
	}
}

func TestTable_Limit(t *testing.T) {
	// No more than maxMembers are kept: those that are gone make room, those that are up do not (case 146).
	t.Run("MemberCap", func(t *testing.T) {
		tab := told(t)
		for i := 2; i <= maxMembers; i++ {
			hear(t, tab, claim{Record: record(i, addrOf(2)), revision: 1})
		}
		more := claim{Record: record(maxMembers+1, addrOf(2)), revision: 1}
		if err := tab.vet(more.ID, coded(t, more)); !errors.Is(err, errFull) {
			t.Errorf("all up: got %v, want %v", err, errFull)
		}
		tab.gone(uuid(7))
		hear(t, tab, more)
		if _, ok := tab.member(uuid(7)); ok {
			t.Error("the one that is gone is still there")
		}
		if n := len(tab.members()); n != maxMembers {
			t.Errorf("got %d members, want %d", n, maxMembers)
		}
	})
	// Members that left are forgotten after an hour, failed ones after three days, others never (case 78).
	t.Run("Forget", func(t *testing.T) {
		tab := told(t, 2, 3, 4)
		hear(t, tab, claim{Record: record(3, addrOf(2)), revision: 2, leaving: true})
		tab.gone(uuid(2))
		tab.gone(uuid(3))
		for _, c := range []struct {
			after time.Duration
			left  int
		}{{keepLeft - time.Minute, 4}, {keepLeft + time.Minute, 3}, {keepFailed - time.Minute, 3}, {keepFailed + time.Minute, 2}} {
			tab.forget(time.Now().Add(c.after))
			if n := len(tab.members()); n != c.left {
				t.Errorf("after %v: got %d members, want %d", c.after, n, c.left)
			}
		}
	})
}
