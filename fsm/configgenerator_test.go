package fsm

import (
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// configOp is a random operation on config records, which are few, so that they meet.
func (g *generator) configOp(id Token, seq uint64) *fsmpb.Op {
	switch g.r.IntN(16) {
	case 0, 1:
		return ttlOp(g.key(), g.pick("1", "x"), time.Duration(g.r.Int64N(3)))
	case 2, 3:
		return ephemeralOp(id, seq, g.key(), g.pick("1", "x"))
	case 4:
		op := casOp(g.key(), uint64(g.mod()), g.pick("5", "y"))
		op.GetCompareAndSwap().Ttl = g.r.Int64N(3)
		return op
	case 5:
		op := casOp(g.key(), uint64(g.mod()), g.pick("5", "y"))
		op.GetCompareAndSwap().Ephemeral = true
		return op
	case 6:
		return addOp(g.key(), g.r.Int64N(9)-4)
	case 7:
		return prefixOp(g.pick("k", "l", "l/", "m/1", ""))
	case 8, 9:
		return g.txnOp()
	case 10, 11:
		return expireOp(g.ref(), g.ref())
	case 12:
		return ageOp(g.ref(), g.ref())
	case 13:
		return compactOp(g.mod())
	case 14:
		return deleteOp(g.key())
	}
	return putOp(g.key(), string(make([]byte, g.r.IntN(2*keptValue))))
}

func (g *generator) key() string { return g.pick("k", "l", "l/1", "l/2", "m/1", "m/1/2") }

// mod is the revision of the last change of some record, or nearly, or a random one.
func (g *generator) mod() Revision {
	if rec, err := g.m.Get([]byte(g.key())); err == nil && g.r.IntN(4) > 0 {
		return rec.Mod
	}
	return Revision(g.r.Uint64N(uint64(g.m.Revision()) + 3))
}

// ref names a record with a TTL, or nearly.
func (g *generator) ref() *fsmpb.RecordRef {
	for x := range g.m.Expiring {
		if g.r.IntN(2) == 0 {
			return ref(string(x.Key), x.Mod-Revision(g.r.Uint64N(5)/4), time.Duration(g.r.Int64N(3)))
		}
	}
	return ref(g.key(), g.mod(), time.Duration(g.r.Int64N(3)))
}

func (g *generator) txnOp() *fsmpb.Op {
	var cs []*fsmpb.Condition
	for range g.r.IntN(3) {
		c := &fsmpb.Condition{Key: []byte(g.key()), Target: fsmpb.Condition_Target(g.r.IntN(5)), Compare: fsmpb.Condition_Compare(g.r.IntN(4))}
		switch c.Target {
		case fsmpb.Condition_EXISTS:
			c.Compare, c.Number = 0, g.r.Int64N(2)
		case fsmpb.Condition_VALUE:
			c.Value = []byte(g.pick("1", "x"))
		default:
			c.Number = int64(g.mod())
		}
		cs = append(cs, c)
	}
	list := func() (ops []*fsmpb.TxnOp) {
		for range g.r.IntN(4) {
			switch g.r.IntN(5) {
			case 0:
				ops = append(ops, part(putOp(g.key(), g.pick("1", "x"))))
			case 1:
				op := putOp(g.key(), "e")
				op.GetPut().Ephemeral = true
				ops = append(ops, part(op))
			case 2:
				ops = append(ops, part(deleteOp(g.key())))
			case 3:
				ops = append(ops, part(addOp(g.key(), 1)))
			case 4:
				ops = append(ops, readPart(g.key()))
			}
		}
		return ops
	}
	return otherwise(txnOp(cs, list()...), list()...)
}
