package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// fuzzShard is a new shard in a database that is used again and again, since making one is slow.
func fuzzShard(t *testing.T, db *pebble.DB, n uint64) *shard {
	m, err := Open(db, n, 1, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), Destroy(db, n, 1)); err != nil {
			t.Error(err)
		}
	})
	return &shard{t: t, db: db, m: m}
}

// Whatever bytes an entry holds, it is applied, refused or halts the machine; memory and storage agree afterwards.
func FuzzMachine_Apply(f *testing.F) {
	_, es, _ := generate(f, 7, 60)
	for _, e := range es {
		f.Add(e.Data)
	}
	db, n := openDB(f, vfs.NewMem()), uint64(0)
	f.Fuzz(func(t *testing.T, data []byte) {
		n++
		s := fuzzShard(t, db, n)
		s.claim("a", 1)
		a, b := s.session("a"), s.session("b")
		s.do(lockOp(a, 1, "x"), lockOp(b, 1, "x"), putOp("k", "v"), ephemeralOp(a, 2, "l", "1"), ttlOp("l/1", "2", 2))
		var e fsmpb.Entry // so that the fuzzer need not guess the stamp
		if proto.Unmarshal(data, &e) == nil && e.GetBatch() != nil {
			e.GetBatch().Stamp = uint64(s.stamp)
			data = encode(t, &e)
		}
		done, err := s.m.Apply([]Entry{{100, data}})
		if err != nil && !errors.Is(err, ErrVersion) {
			t.Fatalf("apply: %v", err)
		}
		if err == nil && len(done[0].Results) != len(e.GetBatch().GetOps()) && done[0].Err == nil {
			t.Fatalf("apply: got %d results, want %d", len(done[0].Results), len(e.GetBatch().GetOps()))
		}
		checkMirror(t, s.m)
		checkHistory(t, s.m)
	})
}

// Whatever bytes a stream holds, the decoder ends, without allocating more than it may.
func FuzzDecoder(f *testing.F) {
	s := owned(f)
	s.do(putOp("k", "v"), lockOp(s.session("n"), 1, "x"))
	good := stream(f, s.m)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := newDecoder(bytes.NewReader(data), Version)
		for err == nil {
			_, _, err = d.record()
		}
		if err != io.EOF && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("got %v, want an end, ErrCorrupt or ErrVersion", err)
		}
		if d != nil && cap(d.buf) > maxFrame {
			t.Fatalf("frame of %d bytes, want at most %d", cap(d.buf), maxFrame)
		}
	})
}

// Whatever records a well-formed stream holds, Restore takes all of them as a state that is sound and can be
// stored again, or refuses all.
func FuzzMachine_Restore(f *testing.F) {
	good := bytes.NewReader(stream(f, goldenConfig(f).m))
	d, err := newDecoder(good, Version)
	var seed []byte
	for err == nil {
		var suffix, value []byte
		if suffix, value, err = d.record(); err == nil {
			seed = appendBytes(appendBytes(seed, suffix), value)
		}
	}
	f.Add(seed)
	db, n := openDB(f, vfs.NewMem()), uint64(0)
	f.Fuzz(func(t *testing.T, data []byte) {
		n += 2
		var b bytes.Buffer
		e, err := newEncoder(&b, 1, 5)
		if err != nil {
			t.Fatal(err)
		}
		in := decoder{rest: data}
		for {
			suffix, ok1 := in.take(maxSuffix)
			value, ok2 := in.take(maxStored)
			if !ok1 || !ok2 {
				break
			}
			if err := e.record(suffix, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.finish(); err != nil {
			t.Fatal(err)
		}
		s := fuzzShard(t, db, n)
		err = s.m.Restore(&b, nil)
		checkMirror(t, s.m)
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("restore: got %v, want success, ErrCorrupt or ErrVersion", err)
		}
		readAll(t, s.m)
		if err == nil {
			again := fuzzShard(t, db, n+1)
			if err := again.m.Restore(bytes.NewReader(stream(t, s.m)), nil); err != nil || hash(t, again.m) != hash(t, s.m) {
				t.Fatalf("restore of the restored: %v", err)
			}
		}
	})
}

// readAll reads all that there is of config records in every way, whatever it says.
func readAll(t *testing.T, m *Machine) {
	oldest := m.Oldest()
	for at := oldest - 1; at <= min(m.Revision(), oldest+20); at++ {
		page, err := m.List(ListQuery{At: at})
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("list at %d: %v", at, err)
		}
		for _, rec := range page.Records {
			_, hErr := m.History(rec.Key, at, 0)
			_, gErr := m.GetAt(rec.Key, at)
			if err := errors.Join(hErr, gErr); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) {
				t.Fatalf("%q at %d: %v", rec.Key, at, err)
			}
		}
	}
	for next := oldest; next <= m.Revision(); {
		page, err := m.Changes(ChangesQuery{From: next})
		if err != nil || page.Next <= next {
			t.Fatalf("changes from %d: next %d, %v", next, page.Next, err)
		}
		next = page.Next
	}
}

// Whatever bytes a stored value holds, each decoder refuses it or reads it in the one way that it is written.
func FuzzDecodeStored(f *testing.F) {
	f.Add([]byte{kindTimed, 'k'}, appendTimed(nil, &Record{Mod: 7, TTL: 5, Age: 3}))
	d, err := newDecoder(bytes.NewReader(stream(f, goldenConfig(f).m)), Version)
	for err == nil {
		var suffix, value []byte
		if suffix, value, err = d.record(); err == nil {
			f.Add(bytes.Clone(suffix), bytes.Clone(value))
		}
	}
	f.Fuzz(func(t *testing.T, suffix, value []byte) {
		if len(suffix) == 0 {
			return
		}
		again, err := rewrite(suffix, value)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%q %x: got %v, want ErrCorrupt", suffix, value, err)
			}
			return
		}
		if !bytes.Equal(again, value) {
			t.Fatalf("%q: read %x, written %x", suffix, value, again)
		}
	})
}

// rewrite decodes a stored value and encodes it again.
func rewrite(suffix, value []byte) ([]byte, error) {
	rest := suffix[1:]
	switch suffix[0] {
	case kindClaim:
		c, err := decodeClaim(value)
		return appendClaim(nil, c), err
	case kindCounters:
		c, err := decodeCounters(value)
		return appendCounters(nil, c), err
	case kindSession:
		id, _, err := parseNumbers(rest, 1)
		if err != nil {
			return nil, err
		}
		s, err := decodeSession(Token(id), value)
		return appendSession(nil, s), err
	case kindResult:
		if _, _, err := parseNumbers(rest, 2); err != nil {
			return nil, err
		}
		res, err := decodeResult(value)
		if err != nil {
			return nil, err
		}
		return appendResult(nil, res), err
	case kindClaimant:
		c, keys, err := decodeClaimant(value)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			c.locks = append(c.locks, &lock{key: k})
		}
		return appendClaimant(nil, c), nil
	case kindTotal:
		n, err := decodeTotal(value)
		return appendTotal(nil, n), err
	case kindClosure:
		if _, _, err := parseNamed(rest); err != nil {
			return nil, err
		}
		d, err := decodeClosure(value)
		return appendClosure(nil, d), err
	case kindJob:
		j, result, err := decodeJob(rest, value)
		return appendJob(nil, j, result), err
	case kindPassed:
		d, err := decodePassed(value)
		return appendPassed(nil, d), err
	case kindRecord:
		rec, err := decodeRecord(rest, value)
		return appendRecord(nil, &rec), err
	case kindHistory:
		rev, _, err := parseChange(rest)
		if err != nil {
			return nil, err
		}
		c, err := decodeChange(rev, value)
		if err != nil {
			return nil, err
		}
		key, flags, err := peekChange(value)
		if err != nil || !bytes.Equal(key, c.Record.Key) || flags&changedTo == 0 != c.Deleted || flags&changedFrom == 0 != (c.Prev == nil) {
			return nil, fmt.Errorf("peeked %q, %d of %+v: %w", key, flags, c, err)
		}
		if c.Deleted {
			return appendChange(nil, key, c.At, c.Prev, nil), nil
		}
		return appendChange(nil, key, c.At, c.Prev, &c.Record), nil
	case kindTimed:
		x, err := decodeTimed(rest, value)
		return appendTimed(nil, &Record{Mod: x.Mod, TTL: x.TTL, Age: x.Age}), err
	}
	return value, nil
}
