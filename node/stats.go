package node

import (
	"sync/atomic"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// Stats are a node's counters since it was opened, which only rise, and a few sizes as they are now.
type Stats struct {
	Proposals          uint64 `json:"proposals"`            // entries proposed here
	Operations         uint64 `json:"operations"`           // operations in them
	Entries            uint64 `json:"entries"`              // entries applied here, of all replicas
	OwnershipsLapsed   uint64 `json:"ownerships_lapsed"`    // leases that ran out here
	JobsForgotten      uint64 `json:"jobs_forgotten"`       // records that this node forgot as owner when their time was over
	ClaimsFailed       uint64 `json:"claims_failed"`        // attempts to become the owner, as a shard's leader, that came to nothing
	LeadershipsGivenUp uint64 `json:"leaderships_given_up"` // Raft leaderships given away because this node could not become owner
	RequestsSent       uint64 `json:"requests_sent"`        // to other nodes
	RequestsServed     uint64 `json:"requests_served"`      // from other nodes
	Retries            uint64 `json:"retries"`              // attempts of calls after the first
	WatchWakeups       uint64 `json:"watch_wakeups"`        // of watches here, by changes under their prefixes
	ConnectionsRefused uint64 `json:"connections_refused"`  // at this node's port
	SessionStats
}

// SessionStats are the part of Stats about sessions and what hangs on them: first as their holder, then as the owner of shards.
type SessionStats struct {
	Sessions       int           `json:"sessions"`        // this node's sessions now
	Holds          int           `json:"holds"`           // locks, permits, leaderships and runs that hang on them now
	OldestHold     time.Duration `json:"oldest_hold"`     // age of the oldest of those, in nanoseconds: a leaked one shows here
	RenewalsSent   uint64        `json:"renewals_sent"`   // messages, each with all the sessions that were due with one node
	RenewalsFailed uint64        `json:"renewals_failed"` // renewals of one session each that were not answered well; they are repeated
	SessionsLost   uint64        `json:"sessions_lost"`   // of this node
	HoldsLost      uint64        `json:"holds_lost"`      // with their sessions, by MaxHold, or because they were taken back

	RenewalsInMemory     uint64 `json:"renewals_in_memory"`    // of one session each, without a log entry
	RenewalsLogged       uint64 `json:"renewals_logged"`       // operations that renewed sessions through the log
	CheckpointsLogged    uint64 `json:"checkpoints_logged"`    // operations that recorded silences
	SessionsCheckpointed uint64 `json:"sessions_checkpointed"` // sessions in them
	ExpiriesLogged       uint64 `json:"expiries_logged"`       // operations that ended silent sessions
	SessionsExpired      uint64 `json:"sessions_expired"`      // sessions in them
}

type counters struct {
	proposals, operations, entries atomic.Uint64
	lapsed, notClaimed, givenUp    atomic.Uint64
	requestsSent, requestsServed   atomic.Uint64
	retries, wakeups               atomic.Uint64
	jobsForgotten                  atomic.Uint64
	sessions                       sessionCounters
}

type sessionCounters struct {
	sent, failed, lost, holdsLost atomic.Uint64
	inMemory, logged              atomic.Uint64
	checkpoints, checkpointed     atomic.Uint64
	expiries, expired             atomic.Uint64
}

// Stats returns the node's counters. It asks nobody and never blocks; they are read one after the other.
func (n *Node) Stats() Stats {
	c := &n.stats
	s := Stats{
		Proposals:          c.proposals.Load(),
		Operations:         c.operations.Load(),
		Entries:            c.entries.Load(),
		OwnershipsLapsed:   c.lapsed.Load(),
		JobsForgotten:      c.jobsForgotten.Load(),
		ClaimsFailed:       c.notClaimed.Load(),
		LeadershipsGivenUp: c.givenUp.Load(),
		RequestsSent:       c.requestsSent.Load(),
		RequestsServed:     c.requestsServed.Load(),
		Retries:            c.retries.Load(),
		WatchWakeups:       c.wakeups.Load(),
		SessionStats:       c.sessions.stats(),
	}
	if t, ok := n.net.transport.(interface{ Stats() transport.Stats }); ok {
		s.ConnectionsRefused = t.Stats().Refused
	}
	if cl := n.cluster.Load(); cl != nil {
		now := n.env.Clock.Now()
		for _, g := range cl.groups {
			for _, x := range g.sessions.live() {
				s.Sessions++
				x.count(&s.SessionStats, now)
			}
		}
	}
	return s
}

func (c *sessionCounters) stats() SessionStats {
	return SessionStats{
		RenewalsSent:         c.sent.Load(),
		RenewalsFailed:       c.failed.Load(),
		SessionsLost:         c.lost.Load(),
		HoldsLost:            c.holdsLost.Load(),
		RenewalsInMemory:     c.inMemory.Load(),
		RenewalsLogged:       c.logged.Load(),
		CheckpointsLogged:    c.checkpoints.Load(),
		SessionsCheckpointed: c.checkpointed.Load(),
		ExpiriesLogged:       c.expiries.Load(),
		SessionsExpired:      c.expired.Load(),
	}
}

// count adds what hangs on the session.
func (s *session) count(to *SessionStats, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.Holds += len(s.holds)
	for g := range s.holds {
		to.OldestHold = max(to.OldestHold, now-g.since)
	}
}
