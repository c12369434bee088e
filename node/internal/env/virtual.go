package env

import (
	"sync"
	"time"
)

// Virtual is a clock on package time: the virtual time of a testing/synctest bubble, or the process's monotonic time.
// It can be frozen and stepped, as a suspended or a drifting machine's would be.
type Virtual struct {
	mu     sync.Mutex // guards the fields below
	start  time.Time
	skew   time.Duration // added to the time since start
	frozen bool
	at     time.Duration // the reading while frozen
	timers map[*virtualTimer]struct{}
}

// NewVirtual returns a clock that reads zero at start.
func NewVirtual(start time.Time) *Virtual {
	return &Virtual{start: start, timers: map[*virtualTimer]struct{}{}}
}

// Now is the reading.
func (v *Virtual) Now() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nowLocked()
}

func (v *Virtual) nowLocked() time.Duration {
	if v.frozen {
		return v.at
	}
	return time.Since(v.start) + v.skew
}

// Fast is Now.
func (v *Virtual) Fast() time.Duration { return v.Now() }

// Freeze stops the clock until Thaw.
func (v *Virtual) Freeze() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.frozen = v.nowLocked(), true
	for t := range v.timers {
		t.pauseLocked()
	}
}

// Thaw lets the clock go on from where it stood.
func (v *Virtual) Thaw() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.frozen {
		return
	}
	v.frozen = false
	v.skew = v.at - time.Since(v.start)
	v.rearmLocked()
}

// Step moves the reading by d, which must not be negative: a boot clock never goes back.
func (v *Virtual) Step(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.frozen {
		v.at += d
		return
	}
	v.skew += d
	v.rearmLocked()
}

func (v *Virtual) rearmLocked() {
	for t := range v.timers {
		t.pauseLocked()
		t.armLocked()
	}
}

type virtualTimer struct {
	v  *Virtual
	at time.Duration
	f  func()
	t  *time.Timer // nil while paused
}

// AfterFunc calls f in a goroutine of its own once the clock has reached at.
func (v *Virtual) AfterFunc(at time.Duration, f func()) Timer {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := &virtualTimer{v: v, at: at, f: f}
	v.timers[t] = struct{}{}
	if !v.frozen {
		t.armLocked()
	}
	return t
}

func (t *virtualTimer) armLocked() {
	t.t = time.AfterFunc(t.at-t.v.nowLocked(), t.fire)
}

func (t *virtualTimer) pauseLocked() {
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}

func (t *virtualTimer) fire() {
	t.v.mu.Lock()
	_, ok := t.v.timers[t]
	if ok && (t.v.frozen || t.v.nowLocked() < t.at) {
		// It fired while the clock was being frozen or rearmed.
		if !t.v.frozen {
			t.armLocked()
		}
		ok = false
	} else {
		delete(t.v.timers, t)
	}
	t.v.mu.Unlock()
	if ok {
		t.f()
	}
}

// Stop prevents the call.
func (t *virtualTimer) Stop() bool {
	t.v.mu.Lock()
	defer t.v.mu.Unlock()
	_, ok := t.v.timers[t]
	delete(t.v.timers, t)
	t.pauseLocked()
	return ok
}

// Close stops all timers.
func (v *Virtual) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for t := range v.timers {
		t.pauseLocked()
	}
	clear(v.timers)
	return nil
}
