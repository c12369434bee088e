package env

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The machine's clock does not go back, Fast stays close to it, and timers fire in the order of their deadlines and not before; a
// stopped one never.
func TestSystemClock(t *testing.T) {
	e, err := System()
	if err != nil {
		t.Fatal(err)
	}
	c := e.Clock
	defer func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("close again: %v", err)
		}
	}()
	a, b := c.Now(), c.Now()
	if a <= 0 || b < a {
		t.Errorf("readings: got %v and then %v, want positive and rising", a, b)
	}
	before := c.Now()
	fast := c.Fast()
	if after := c.Now(); fast < before-time.Second || fast > after+time.Second {
		t.Errorf("Fast: got %v, want about %v..%v", fast, before, after)
	}
	fired := make(chan int, 3)
	start := c.Now()
	c.AfterFunc(start+20*time.Millisecond, func() { fired <- 2 })
	c.AfterFunc(start+10*time.Millisecond, func() { fired <- 1 })
	stopped := c.AfterFunc(start+15*time.Millisecond, func() { fired <- 3 })
	if !stopped.Stop() || stopped.Stop() {
		t.Error("Stop: want true once and then false")
	}
	c.AfterFunc(0, func() { fired <- 0 }) // long past: at once
	for want := range 3 {
		if got := <-fired; got != want {
			t.Errorf("fired %d, want %d", got, want)
		}
	}
	if took := c.Now() - start; took < 20*time.Millisecond {
		t.Errorf("the last timer fired after %v, want 20ms or more", took)
	}
}

// A virtual clock stands while frozen, goes on from there, and jumps by a step; its timers follow it.
func TestVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVirtual(time.Now())
		fired := make(chan time.Duration, 1)
		v.AfterFunc(10*time.Second, func() { fired <- v.Now() })
		time.Sleep(4 * time.Second)
		v.Freeze()
		time.Sleep(time.Hour)
		if got := v.Now(); got != 4*time.Second {
			t.Errorf("frozen: got %v, want 4s", got)
		}
		v.Thaw()
		v.Step(5 * time.Second)
		if got := v.Now(); got != 9*time.Second {
			t.Errorf("thawed and stepped: got %v, want 9s", got)
		}
		select {
		case at := <-fired:
			t.Fatalf("fired at %v, want 10s", at)
		default:
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if at := <-fired; at != 10*time.Second {
			t.Errorf("fired at %v, want 10s", at)
		}
		stopped := v.AfterFunc(20*time.Second, func() { t.Error("a stopped timer fired") })
		v.Freeze()
		if !stopped.Stop() {
			t.Error("Stop while frozen: got false")
		}
		v.Thaw()
		if err := v.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// A node gets the surroundings that the context carries.
func TestFrom(t *testing.T) {
	e := &Env{BootID: "b"}
	got, err := From(With(context.Background(), e))
	if got != e || err != nil {
		t.Errorf("got %v, %v, want the one given", got, err)
	}
}
