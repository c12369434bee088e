package fsm

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

func appendClaimant(b []byte, c *claimant) []byte {
	b = append(b, layout, byte(c.locks[0].key.kind), byte(c.mode))
	b = appendFlag(appendFlag(b, c.started), c.revoke)
	b = binary.AppendUvarint(b, uint64(c.ticket))
	b = binary.AppendUvarint(b, uint64(c.token))
	b = binary.AppendUvarint(b, uint64(c.maxHold))
	b = binary.AppendUvarint(b, uint64(c.grace))
	b = appendBytes(b, c.value)
	b = binary.AppendUvarint(b, uint64(len(c.locks)))
	for _, l := range c.locks {
		b = appendString(b, l.key.name)
	}
	return b
}

// decodeClaimant also returns the locks' keys, which the caller has to look up.
func decodeClaimant(b []byte) (*claimant, []lockKey, error) {
	r := read(b)
	kind, mode := fsmpb.Lock_Kind(r.byte()), fsmpb.Lock_Mode(r.byte())
	c := &claimant{mode: mode, started: r.flag(), revoke: r.flag(), ticket: Token(r.uint()), token: Token(r.uint())}
	c.maxHold, c.grace, c.value = r.duration(MaxHold), r.duration(MaxGrace), r.bytes(MaxLockValue)
	n := r.uint()
	if r.bad || n == 0 || n > 1+MaxNames || c.ticket == 0 || c.token != 0 && c.token < c.ticket ||
		c.token == 0 && (c.started || c.revoke) ||
		kind > fsmpb.Lock_JOB || mode > fsmpb.Lock_PERMIT || !combines(kind, mode, int(n)) {
		return nil, nil, fmt.Errorf("%w: lock's claimant", ErrCorrupt)
	}
	keys := make([]lockKey, 0, n)
	seen := make(map[string]bool, n)
	for range n {
		name := string(r.bytes(MaxName))
		r.bad = r.bad || name == "" || seen[name]
		seen[name] = true
		keys = append(keys, lockKey{kind, name})
	}
	return c, keys, r.done("lock's claimant")
}

// combines reports whether a kind of lock has that mode, and that many names.
func combines(kind fsmpb.Lock_Kind, mode fsmpb.Lock_Mode, names int) bool {
	return mode == fsmpb.Lock_EXCLUSIVE && (names == 1 || kind == fsmpb.Lock_LOCK) || kind == fsmpb.Lock_LOCK && names == 1
}

func appendTotal(b []byte, permits uint32) []byte {
	return binary.AppendUvarint(append(b, layout), uint64(permits))
}

func decodeTotal(b []byte) (uint32, error) {
	r := read(b)
	n := r.uint()
	r.bad = r.bad || n == 0 || n > MaxPermits
	return uint32(n), r.done("semaphore's total")
}

func appendClosure(b []byte, grace time.Duration) []byte {
	return binary.AppendUvarint(append(b, layout), uint64(grace))
}

func decodeClosure(b []byte) (time.Duration, error) {
	r := read(b)
	d := r.duration(MaxGrace)
	r.bad = r.bad || d == 0
	return d, r.done("closed name")
}

func appendJob(b []byte, j *job, result []byte) []byte {
	b = binary.AppendUvarint(append(b, layout), j.attempt)
	b = binary.AppendUvarint(b, uint64(j.done))
	b = binary.AppendUvarint(b, uint64(j.token))
	b = binary.AppendUvarint(b, uint64(j.keep))
	b = binary.AppendUvarint(b, uint64(j.at))
	b = appendBytes(b, result)
	if j.born > 0 {
		b = binary.AppendUvarint(b, uint64(j.born))
	}
	return b
}

func decodeJob(name, b []byte) (*job, []byte, error) {
	r := read(b)
	j := &job{name: string(name), attempt: r.uint(), done: Token(r.uint()), token: Token(r.uint())}
	keep, at, result := r.uint(), r.uint(), r.bytes(MaxJobResult)
	j.keep, j.at = time.Duration(keep), int64(at)
	if len(r.b) > 0 {
		j.born = r.duration(math.MaxInt64)
		r.bad = r.bad || j.born == 0
	}
	switch {
	case len(name) == 0, len(name) > MaxName, j.attempt == 0, keep > math.MaxInt64, at > math.MaxInt64:
		r.bad = true
	case j.done == 0:
		r.bad = r.bad || j.token != 0 || keep != 0 || at != 0 || result != nil || j.born != 0
	default:
		r.bad = r.bad || j.token == 0 || j.token >= j.done
	}
	return j, result, r.done("job")
}

func appendPassed(b []byte, d time.Duration) []byte {
	return binary.AppendUvarint(append(b, layout), uint64(d))
}

func decodePassed(b []byte) (time.Duration, error) {
	r := read(b)
	d := r.duration(math.MaxInt64)
	r.bad = r.bad || d == 0
	return d, r.done("passed time")
}

// appendJobMessage appends the job of a result.
func appendJobMessage(b []byte, m *fsmpb.Job) []byte {
	j := &job{attempt: m.Attempt, done: Token(m.Done), token: Token(m.Token), keep: time.Duration(m.Keep), at: m.At}
	return appendBytes(appendBytes(b, m.Name), appendJob(nil, j, m.Result))
}

func decodeJobMessage(name, b []byte) (*fsmpb.Job, error) {
	j, result, err := decodeJob(name, b)
	if err != nil {
		return nil, err
	}
	return j.message(result), nil
}
