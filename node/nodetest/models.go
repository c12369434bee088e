package nodetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oarlock/oarlock/node"
)

// Kinds of operations on a record.
const (
	opPut = iota
	opSwap
	opDelete
	opGet
)

// A record is one operation on a key and what it came to.
type record struct {
	kind     int
	old      node.Revision // what opSwap expected
	value    string        // written or read
	found    bool          // by opGet
	rev      node.Revision // of the change, or of the record that was read
	conflict bool          // opSwap changed nothing
	unknown  bool          // it may have happened or not
}

// A cell is what a key holds in the model. A revision of zero in a present cell is not known: nobody was told it.
type cell struct {
	present bool
	value   string
	rev     node.Revision
}

// recordModel is one key as a register with revisions.
func recordModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{cell{}} },
		Step:  func(s, in, _ any) []any { return stepRecord(s.(cell), in.(record)) },
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

// stepRecord returns the cells that r may leave behind where c was; none: r cannot have had this outcome here.
func stepRecord(c cell, r record) []any {
	switch r.kind {
	case opGet:
		return stepGet(c, r)
	case opSwap:
		return stepSwap(c, r)
	case opDelete:
		return []any{cell{}}
	default:
		return []any{cell{present: true, value: r.value, rev: r.rev}}
	}
}

func stepGet(c cell, r record) []any {
	switch {
	case r.found != c.present, r.found && r.value != c.value, r.found && c.rev != 0 && r.rev != c.rev:
		return nil
	case r.found:
		c.rev = r.rev // known from here on
	}
	return []any{c}
}

func stepSwap(c cell, r record) []any {
	matches := c.present && c.rev == r.old || !c.present && r.old == 0
	may := matches || c.present && c.rev == 0 && r.old != 0
	swapped := cell{present: true, value: r.value, rev: r.rev}
	switch {
	case r.unknown && matches:
		return []any{swapped}
	case r.unknown && may:
		return []any{swapped, c}
	case r.unknown:
		return []any{c}
	case r.conflict && matches:
		return nil
	case r.conflict:
		return []any{c}
	case may:
		return []any{swapped}
	}
	return nil
}

// A grant is the begin or the end of a hold.
type grant struct {
	token node.Token
	end   bool
	maybe bool // it may have ended before, or by other means
}

// A mutex is a lock in the model.
type mutex struct {
	holder node.Token // 0: free
	high   node.Token
}

// lockModel is one lock: granted when free, with rising tokens, and freed by its holder.
func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return mutex{} },
		Step: func(s, in, _ any) (bool, any) {
			m, g := s.(mutex), in.(grant)
			switch {
			case !g.end:
				return m.holder == 0 && g.token > m.high, mutex{g.token, g.token}
			case m.holder == g.token:
				return true, mutex{0, m.high}
			default:
				return g.maybe || m.high >= g.token, m
			}
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func lockName(shard int, name string) string { return fmt.Sprintf("lock %q in shard %d", name, shard) }

// describe lists the last operations of a history.
func describe(ops []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range ops[max(0, len(ops)-20):] {
		end := "…"
		if op.Return < endless {
			end = time.Duration(op.Return).String()
		}
		fmt.Fprintf(&b, "\n\t[%v %s] %+v", time.Duration(op.Call), end, op.Input)
	}
	return b.String()
}
