package fsm

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// layout is the first byte of each stored value. Another layout of the same record gets another number, and is
// written only after the cluster was raised to the version that knows it. The encodings are our own, not
// protobuf's, because replicas compare hashes of what is stored and protobuf promises no canonical form.
//
// longer is the layout of counters, config records and results that have something which few have. What has nothing of
// it is written in the shorter layout and in no other, so that equal state has equal bytes.
const (
	layout = 1
	longer = 2
)

// reader takes a stored value apart. The first fault sticks; done reports it.
type reader struct {
	b   []byte
	bad bool
}

func read(b []byte) *reader {
	r := &reader{b: b}
	if r.byte() != layout {
		r.bad = true
	}
	return r
}

// readEither is read for what has two layouts, and reports whether it is the longer one.
func readEither(b []byte) (*reader, bool) {
	r := &reader{b: b}
	l := r.byte()
	r.bad = r.bad || l != layout && l != longer
	return r, l == longer
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) flag() bool {
	c := r.byte()
	r.bad = r.bad || c > 1
	return c == 1
}

// uint accepts only the shortest form: equal state has equal bytes, or replicas' hashes would differ.
func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// int reads what binary.AppendVarint wrote.
func (r *reader) int() int64 {
	u := r.uint()
	return int64(u>>1) ^ -int64(u&1)
}

// revision refuses what no counter can have reached.
func (r *reader) revision() Revision {
	u := r.uint()
	r.bad = r.bad || u > math.MaxInt64
	return Revision(u)
}

// bytes returns a copy, nil if it is empty.
func (r *reader) bytes(limit int) []byte {
	n := r.uint()
	if r.bad || n > uint64(limit) || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	c := append([]byte(nil), r.b[:n]...)
	r.b = r.b[n:]
	return c
}

func (r *reader) duration(limit time.Duration) time.Duration {
	d := r.uint()
	if d > uint64(limit) {
		r.bad = true
		return 0
	}
	return time.Duration(d)
}

func (r *reader) done(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", ErrCorrupt, what)
	}
	return nil
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendString(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendClaim(b []byte, c Claim) []byte {
	b = binary.AppendUvarint(append(b, layout), uint64(c.Token))
	b = appendString(b, c.Node)
	b = binary.AppendUvarint(b, c.Incarnation)
	b = binary.AppendUvarint(b, c.Term)
	b = binary.AppendUvarint(b, uint64(c.Lease))
	return appendFlag(b, c.Released)
}

func decodeClaim(b []byte) (Claim, error) {
	r := read(b)
	c := Claim{Token: Token(r.uint()), Node: string(r.bytes(MaxNode)), Incarnation: r.uint(), Term: r.uint()}
	c.Lease, c.Released = r.duration(MaxLease), r.flag()
	return c, r.done("claim")
}

// appendCounters appends the longer layout if there is any history.
func appendCounters(b []byte, c counters) []byte {
	history := c.oldest <= c.revision
	if history {
		b = append(b, longer)
	} else {
		b = append(b, layout)
	}
	b = binary.AppendUvarint(b, uint64(c.version))
	b = binary.AppendUvarint(b, uint64(c.tokens))
	b = binary.AppendUvarint(b, uint64(c.revision))
	if history {
		b = binary.AppendUvarint(b, uint64(c.oldest))
	}
	return b
}

func decodeCounters(b []byte) (counters, error) {
	r, history := readEither(b)
	version := r.uint()
	r.bad = r.bad || version == 0 || version > 1<<31
	c := counters{version: uint32(version), tokens: Token(r.uint()), revision: r.revision()}
	c.oldest = c.revision + 1
	if history {
		c.oldest = r.revision()
		r.bad = r.bad || c.oldest == 0 || c.oldest > c.revision
	}
	return c, r.done("counters")
}

func appendSession(b []byte, s *session) []byte {
	b = appendString(append(b, layout), s.node)
	b = binary.AppendUvarint(b, s.incarnation)
	b = binary.AppendUvarint(b, uint64(s.ttl))
	b = append(b, s.nonce[:]...)
	b = binary.AppendUvarint(b, uint64(s.life.Heard))
	b = binary.AppendUvarint(b, uint64(s.life.Silence))
	return binary.AppendUvarint(b, s.low)
}

func decodeSession(id Token, b []byte) (*session, error) {
	r := read(b)
	s := &session{id: id, node: string(r.bytes(MaxNode)), incarnation: r.uint(), ttl: r.duration(MaxTTL)}
	if len(r.b) >= NonceSize {
		r.b = r.b[copy(s.nonce[:], r.b):]
	} else {
		r.bad = true
	}
	s.life.Heard, s.life.Silence, s.low = Token(r.uint()), r.duration(SessionLimit(MaxTTL)), r.uint()
	return s, r.done("session")
}
