package node

import (
	"sync"
	"time"

	"github.com/oarlock/oarlock/fsm"
)

// ages are since when an owner knows of grants and waiters.
type ages struct {
	mu sync.Mutex // guards m
	m  map[fsm.Token]map[uint64]time.Duration
}

func (a *ages) init() { a.m = map[fsm.Token]map[uint64]time.Duration{} }

// note is called when an operation was queued or granted.
func (a *ages) note(k waitKey, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.m[k.session]
	if of == nil {
		of = map[uint64]time.Duration{}
		a.m[k.session] = of
	}
	of[k.seq] = now
}

func (a *ages) forget(k waitKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.m[k.session]
	if delete(of, k.seq); len(of) == 0 {
		delete(a.m, k.session)
	}
}

func (a *ages) forgetSession(s fsm.Token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.m, s)
}

// since is when the owner first knew of k; def if that was before its time.
func (a *ages) since(k waitKey, def time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.m[k.session][k.seq]; ok {
		return t
	}
	return def
}
