package transport

import (
	"sync"
	"time"
)

const (
	refusalEvery = time.Minute // one line for each remote host
	refusalHosts = 1024        // hosts that are told apart; of more than that within a minute nothing is logged
)

// refusals decides which refused connections are logged, so that a port scanner or a misconfigured peer does not flood
// the log.
type refusals struct {
	mu    sync.Mutex // guards the fields below
	hosts map[string]*refusal
	swept time.Time // when hosts was last cleared of what is over
}

type refusal struct {
	logged   time.Time
	unlogged int
}

func newRefusals() *refusals { return &refusals{hosts: make(map[string]*refusal)} }

// note says whether a refusal of host at time now is to be logged, and how many were not since the last that was.
func (r *refusals) note(host string, now time.Time) (unlogged int, log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.hosts[host]
	if last == nil {
		if len(r.hosts) >= refusalHosts && now.Sub(r.swept) >= time.Second { // in a flood, not at each
			r.forgetLocked(now)
		}
		if len(r.hosts) >= refusalHosts {
			return 0, false // a flood from everywhere: the counter tells
		}
		r.hosts[host] = &refusal{logged: now}
		return 0, true
	}
	if now.Sub(last.logged) < refusalEvery {
		last.unlogged++
		return 0, false
	}
	unlogged = last.unlogged
	last.logged, last.unlogged = now, 0
	return unlogged, true
}

// forgetLocked drops the hosts whose next refusal would be logged anyway.
func (r *refusals) forgetLocked(now time.Time) {
	r.swept = now
	for host, last := range r.hosts {
		if now.Sub(last.logged) >= refusalEvery {
			delete(r.hosts, host)
		}
	}
}
