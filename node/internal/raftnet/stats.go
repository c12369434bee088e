package raftnet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Stats are counters since the Factory was made. They only rise.
type Stats struct {
	Dials, DialErrors       uint64 // attempts to connect, and those that failed, also for want of an address
	Broken                  uint64 // connections of ours that ended other than by Close
	Refused                 uint64 // connections refused for their hello, by us or by the peer
	Malformed               uint64 // connections closed for what they sent
	HandlerPanics           uint64 // connections closed because dragonboat panicked over what they sent
	Sent, Dropped, Received uint64 // Raft messages; dropped ones found no connection
	SentChunks, TakenChunks uint64 // snapshot chunks acknowledged by a peer, and taken from peers
	SentBytes               uint64 // of frames of messages and chunks
}

type counters struct {
	dials, dialErrors, broken, refused, malformed, panics atomic.Uint64
	sent, dropped, received                               atomic.Uint64
	sentChunks, takenChunks, sentBytes                    atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Dials: c.dials.Load(), DialErrors: c.dialErrors.Load(), Broken: c.broken.Load(),
		Refused: c.refused.Load(), Malformed: c.malformed.Load(), HandlerPanics: c.panics.Load(),
		Sent: c.sent.Load(), Dropped: c.dropped.Load(), Received: c.received.Load(),
		SentChunks: c.sentChunks.Load(), TakenChunks: c.takenChunks.Load(), SentBytes: c.sentBytes.Load(),
	}
}

// lineEvery is how often the same message about the same peer may stand in the log.
const lineEvery = time.Minute

// maxLines bounds what a lineLimit remembers; peers choose part of it. When it is full it starts afresh.
const maxLines = 256

// A lineLimit keeps what repeats itself from flooding the log. The zero value works.
type lineLimit struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

func (l *lineLimit) error(to hclog.Logger, msg string, pairs ...any) {
	l.log(to, hclog.Error, msg, pairs)
}
func (l *lineLimit) warn(to hclog.Logger, msg string, pairs ...any) {
	l.log(to, hclog.Warn, msg, pairs)
}
func (l *lineLimit) debug(to hclog.Logger, msg string, pairs ...any) {
	l.log(to, hclog.Debug, msg, pairs)
}

// log writes the line unless the same message with the same first pair was written within lineEvery.
func (l *lineLimit) log(to hclog.Logger, level hclog.Level, msg string, pairs []any) {
	if level < to.GetLevel() {
		return
	}
	key := msg
	if len(pairs) > 1 {
		if s, ok := pairs[1].(string); ok {
			key += "\x00" + s
		}
	}
	now := time.Now()
	l.mu.Lock()
	at, seen := l.last[key]
	show := !seen || now.Sub(at) >= lineEvery
	if show {
		if l.last == nil || len(l.last) >= maxLines {
			l.last = map[string]time.Time{}
		}
		l.last[key] = now
	}
	l.mu.Unlock()
	if show {
		to.Log(level, msg, pairs...)
	}
}
