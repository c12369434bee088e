package fsm

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// appendRecord appends the longer layout if the record has a TTL.
func appendRecord(b []byte, rec *Record) []byte {
	if rec.TTL == 0 {
		b = append(b, layout)
	} else {
		b = append(b, longer)
	}
	b = binary.AppendUvarint(b, uint64(rec.Create))
	b = binary.AppendUvarint(b, uint64(rec.Mod))
	b = binary.AppendUvarint(b, uint64(rec.Version))
	b = binary.AppendUvarint(b, uint64(rec.Session))
	if rec.TTL != 0 {
		b = binary.AppendUvarint(b, uint64(rec.TTL))
		b = binary.AppendUvarint(b, uint64(rec.Age))
	}
	return appendBytes(b, rec.Value)
}

func decodeRecord(key, b []byte) (Record, error) {
	r, timed := readEither(b)
	rec := Record{Key: append([]byte(nil), key...), Create: r.revision(), Mod: r.revision()}
	version := r.uint()
	r.bad = r.bad || version > math.MaxInt64 || len(key) == 0 || len(key) > MaxKey
	rec.Version, rec.Session = int64(version), Token(r.uint())
	if timed {
		rec.TTL = r.duration(MaxRecordTTL)
		rec.Age = r.duration(rec.TTL)
		r.bad = r.bad || rec.TTL == 0 || rec.Session != 0
	}
	rec.Value = r.bytes(MaxValue)
	return rec, r.done("config record")
}

// appendTimed appends what the index says of a record with a TTL.
func appendTimed(b []byte, rec *Record) []byte {
	b = binary.AppendUvarint(append(b, layout), uint64(rec.Mod))
	b = binary.AppendUvarint(b, uint64(rec.TTL))
	return binary.AppendUvarint(b, uint64(rec.Age))
}

func decodeTimed(key, b []byte) (Timed, error) {
	r := read(b)
	x := Timed{Key: append([]byte(nil), key...), Mod: r.revision(), TTL: r.duration(MaxRecordTTL)}
	x.Age = r.duration(x.TTL)
	r.bad = r.bad || x.TTL == 0
	return x, r.done("expiring record")
}

// Flags of a stored change. What a change made has the flag changedTo, what was there before it changedFrom.
const (
	changedTo   = 1
	changedFrom = 2
)

// appendChange appends a change from old to rec, nil if there is none. The revision is in its key, and what follows from it
// and from old is not stored.
func appendChange(b, key []byte, at int64, old, rec *Record) []byte {
	flags := byte(0)
	if rec != nil {
		flags |= changedTo
	}
	if old != nil {
		flags |= changedFrom
	}
	b = appendBytes(append(b, layout, flags), key)
	b = binary.AppendUvarint(b, uint64(at))
	if rec != nil {
		b = appendPart(b, rec)
	}
	if old != nil {
		b = binary.AppendUvarint(b, uint64(old.Create))
		b = binary.AppendUvarint(b, uint64(old.Mod))
		b = binary.AppendUvarint(b, uint64(old.Version))
		b = appendPart(b, old)
	}
	return b
}

// decodeChange takes apart the change of a revision.
func decodeChange(rev Revision, b []byte) (Change, error) {
	r := read(b)
	flags := r.byte()
	key := r.bytes(MaxKey)
	r.bad = r.bad || flags == 0 || flags > changedTo|changedFrom || len(key) == 0
	c := Change{Revision: rev, At: int64(r.uint()), Deleted: flags&changedTo == 0}
	c.Record = Record{Key: key, Mod: rev}
	if !c.Deleted {
		r.part(&c.Record)
		c.Record.Create, c.Record.Version = rev, 1
	}
	if flags&changedFrom == 0 {
		return c, r.done("change")
	}
	c.Prev = &Record{Key: key, Create: r.revision(), Mod: r.revision()}
	version := r.uint()
	r.bad = r.bad || version == 0 || version >= math.MaxInt64 || c.Prev.Create == 0 || c.Prev.Create > c.Prev.Mod || c.Prev.Mod >= rev
	c.Prev.Version = int64(version)
	r.part(c.Prev)
	if !c.Deleted {
		c.Record.Create, c.Record.Version = c.Prev.Create, c.Prev.Version+1
	}
	return c, r.done("change")
}

// peekChange returns the key of a stored change, which is a part of b, and its flags.
func peekChange(b []byte) (key []byte, flags byte, err error) {
	if len(b) > 2 && b[0] == layout {
		n, k := binary.Uvarint(b[2:])
		if k > 0 && n <= uint64(len(b)-2-k) {
			return b[2+k : 2+k+int(n)], b[1], nil
		}
	}
	return nil, 0, fmt.Errorf("%w: change of %d bytes", ErrCorrupt, len(b))
}

// appendPart appends what a change stores of the record before it as well as of that after it.
func appendPart(b []byte, rec *Record) []byte {
	b = binary.AppendUvarint(b, uint64(rec.Session))
	b = binary.AppendUvarint(b, uint64(rec.TTL))
	return appendBytes(b, rec.Value)
}

func (r *reader) part(rec *Record) {
	rec.Session, rec.TTL, rec.Value = Token(r.uint()), r.duration(MaxRecordTTL), r.bytes(MaxValue)
	r.bad = r.bad || rec.Session != 0 && rec.TTL != 0
}

// toMessage and fromMessage share the key and the value.
func toMessage(rec *Record) *fsmpb.Record {
	return &fsmpb.Record{Key: rec.Key, Value: rec.Value, Create: uint64(rec.Create), Mod: uint64(rec.Mod),
		Version: rec.Version, Session: uint64(rec.Session), Ttl: int64(rec.TTL), Age: int64(rec.Age)}
}

func fromMessage(rec *fsmpb.Record) *Record {
	return &Record{Key: rec.Key, Value: rec.Value, Create: Revision(rec.Create), Mod: Revision(rec.Mod),
		Version: rec.Version, Session: Token(rec.Session), TTL: time.Duration(rec.Ttl), Age: time.Duration(rec.Age)}
}
