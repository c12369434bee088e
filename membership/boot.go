package membership

import "time"

const (
	rivalEvery = 10 * time.Second // between two reports of one rival
	maxRivals  = 64               // that are remembered
)

// A boot is one process of a node: the number of its start, and what tells it from a copy at the same start.
type boot struct{ incarnation, nonce uint64 }

func (r Record) boot() boot { return boot{r.Incarnation, r.Nonce} }

// Admit says whether the process that introduces itself as one start of node id is to be listened to: it is the one that this
// node knows of, or a later start, or the first that is heard of. It is remembered, also when gossip has not heard of it, and
// from then on every other process with that start or an earlier one is refused: it runs in a copy of the node's directory. A node
// that was forgotten stays known here. It never blocks.
func (m *Membership) Admit(id string, incarnation, nonce uint64) bool {
	return m.table.admit(id, boot{incarnation, nonce})
}

func (t *table) admit(id string, b boot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == t.self.ID {
		return b == t.self.boot()
	}
	return t.bootLocked(id, b) == nil
}

// bootLocked takes b for the process of node id, unless a later start or another process with that start is known.
func (t *table) bootLocked(id string, b boot) error {
	known, ok := t.boots[id]
	switch {
	case ok && b == known:
		return nil
	case ok && b.incarnation < known.incarnation:
		return errStale
	case ok && b.incarnation == known.incarnation:
		return errRival
	case ok || t.bootRoomLocked():
		t.boots[id] = b
	}
	return nil
}

// bootRoomLocked makes room for one more process, if need be by forgetting one that is no member.
func (t *table) bootRoomLocked() bool {
	if len(t.boots) < maxMembers {
		return true
	}
	for id := range t.boots {
		if t.entries[id] == nil {
			delete(t.boots, id)
			return true
		}
	}
	return false
}

// rivals are other processes with this node's ID.
type rivals struct {
	fresh []Record             // to be reported
	told  map[uint64]time.Time // by nonce: when it was reported last
}

// add says whether r is to be reported now.
func (v *rivals) add(r Record, now time.Time) bool {
	if at, ok := v.told[r.Nonce]; ok && now.Sub(at) < rivalEvery {
		return false
	}
	if v.told == nil || len(v.told) >= maxRivals {
		v.told = make(map[uint64]time.Time)
	}
	v.told[r.Nonce] = now
	v.fresh = append(v.fresh, r)
	return true
}

func (v *rivals) take() []Record {
	fresh := v.fresh
	v.fresh = nil
	return fresh
}
