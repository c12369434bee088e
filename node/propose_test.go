package node

import (
	"testing"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// An entry takes callers' operations first, up to its bounds, and then some of those on many sessions, never more sessions than maxMany but
// for a lone operation: neither kind holds up the other for longer than an entry.
func TestOpQueue_Take(t *testing.T) {
	renew := func(n int) *fsmpb.Op {
		return &fsmpb.Op{Kind: &fsmpb.Op_Renew{Renew: &fsmpb.Renew{Ids: make([]uint64, n)}}}
	}
	expire := func(n int) *fsmpb.Op {
		return &fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: make([]uint64, n), Expired: true}}}
	}
	put := &fsmpb.Op{Kind: &fsmpb.Op_Put{Put: &fsmpb.Put{Key: []byte("k")}}}
	var q opQueue
	q.init()
	for range 10 {
		for _, op := range []*fsmpb.Op{renew(maxMany), expire(maxMany / 2), renew(maxMany / 2)} {
			q.push(newQueued(op))
		}
		q.push(newQueued(renew(1)))
	}
	for range maxGather + 10 {
		q.push(newQueued(put))
	}
	puts, sessions, entries := 0, 0, 0
	for len(q.ready) > 0 {
		<-q.ready
		of := 0
		ops := q.take()
		for i, x := range ops {
			n := concerns(x.op)
			if n == 0 {
				puts++
			}
			if n == 0 && i > 0 && concerns(ops[i-1].op) > 0 {
				t.Error("a caller's operation comes behind one on many sessions")
			}
			of += n
		}
		if of == 0 || of > maxMany {
			t.Errorf("entry %d of %d operations is on %d sessions, want 1 to %d", entries, len(ops), of, maxMany)
		}
		sessions += of
		if entries++; entries == 2 && puts != maxGather+10 {
			t.Errorf("callers' operations in two entries: got %d, want all %d", puts, maxGather+10)
		}
	}
	if want := 10 * (2*maxMany + 1); sessions != want {
		t.Errorf("sessions: got %d, want %d", sessions, want)
	}
	if op := newQueued(&fsmpb.Op{Kind: &fsmpb.Op_EndSessions{EndSessions: &fsmpb.EndSessions{Ids: []uint64{1}}}}); concerns(op.op) != 0 {
		t.Error("the end of a session by its holder is no caller's operation")
	}
}
