package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// layout is the first byte of each stored value. Another layout of the same record gets another number, and is
// written only after the cluster was raised to the version that knows it. The encodings are our own, not
// protobuf's, because replicas compare hashes of what is stored and protobuf promises no canonical form.
const layout = 1

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

func appendCounters(b []byte, c counters) []byte {
	b = binary.AppendUvarint(append(b, layout), uint64(c.version))
	b = binary.AppendUvarint(b, uint64(c.tokens))
	return binary.AppendUvarint(b, uint64(c.revision))
}

func decodeCounters(b []byte) (counters, error) {
	r := read(b)
	version := r.uint()
	r.bad = r.bad || version == 0 || version > 1<<31
	c := counters{version: uint32(version), tokens: Token(r.uint()), revision: Revision(r.uint())}
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

func appendRecord(b []byte, rec *Record) []byte {
	b = binary.AppendUvarint(append(b, layout), uint64(rec.Create))
	b = binary.AppendUvarint(b, uint64(rec.Mod))
	b = binary.AppendUvarint(b, uint64(rec.Version))
	b = binary.AppendUvarint(b, uint64(rec.Session))
	return appendBytes(b, rec.Value)
}

func decodeRecord(key, b []byte) (Record, error) {
	r := read(b)
	rec := Record{Key: append([]byte(nil), key...), Create: Revision(r.uint()), Mod: Revision(r.uint())}
	version := r.uint()
	r.bad = r.bad || version > 1<<63-1 || len(key) == 0 || len(key) > MaxKey
	rec.Version, rec.Session, rec.Value = int64(version), Token(r.uint()), r.bytes(MaxValue)
	return rec, r.done("config record")
}

func appendResult(b []byte, res *fsmpb.Result) []byte {
	b = append(b, layout, byte(res.Status))
	b = binary.AppendUvarint(b, res.Token)
	b = binary.AppendUvarint(b, res.Revision)
	b = appendFlag(b, res.Trimmed)
	b = appendString(b, res.Reason)
	b = binary.AppendUvarint(b, uint64(res.Permits))
	b = binary.AppendUvarint(b, res.Attempt)
	b = binary.AppendUvarint(b, uint64(len(res.Exists)))
	for _, e := range res.Exists {
		b = appendFlag(b, e)
	}
	b = appendFlag(b, res.Record != nil)
	if rec := res.Record; rec != nil {
		b = appendBytes(b, rec.Key)
		b = appendBytes(b, appendRecord(nil, fromMessage(rec)))
	}
	b = appendFlag(b, res.Job != nil)
	if res.Job != nil {
		b = appendJobMessage(b, res.Job)
	}
	return b
}

func decodeResult(b []byte) (*fsmpb.Result, error) {
	r := read(b)
	res := &fsmpb.Result{Status: fsmpb.Result_Status(r.byte()), Token: r.uint(), Revision: r.uint()}
	res.Trimmed, res.Reason = r.flag(), string(r.bytes(len(b)))
	permits := r.uint()
	r.bad = r.bad || permits > MaxPermits
	res.Permits, res.Attempt = uint32(permits), r.uint()
	n := r.uint()
	if n > uint64(len(r.b)) {
		return nil, fmt.Errorf("%w: result", ErrCorrupt)
	}
	for range n {
		res.Exists = append(res.Exists, r.flag())
	}
	if r.flag() {
		rec, err := decodeRecord(r.bytes(MaxKey), r.bytes(len(b)))
		if err != nil {
			return nil, err
		}
		res.Record = toMessage(&rec)
	}
	if r.flag() {
		j, err := decodeJobMessage(r.bytes(MaxName), r.bytes(len(b)))
		if err != nil {
			return nil, err
		}
		res.Job = j
	}
	return res, r.done("result")
}

// toMessage and fromMessage share the key and the value.
func toMessage(rec *Record) *fsmpb.Record {
	return &fsmpb.Record{Key: rec.Key, Value: rec.Value, Create: uint64(rec.Create), Mod: uint64(rec.Mod),
		Version: rec.Version, Session: uint64(rec.Session)}
}

func fromMessage(rec *fsmpb.Record) *Record {
	return &Record{Key: rec.Key, Value: rec.Value, Create: Revision(rec.Create), Mod: Revision(rec.Mod),
		Version: rec.Version, Session: Token(rec.Session)}
}
