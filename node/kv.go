package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// A Revision counts the changes of a shard's config records, over all keys.
type Revision = fsm.Revision

// A Record is a config record. Its slices are the caller's.
type Record struct {
	Key       string
	Value     []byte
	Create    Revision // of the change that made the key
	Mod       Revision // of the last change
	Version   int64    // changes since the key was made, from 1
	Ephemeral bool     // it goes with the session that wrote it
}

// minRecordTTL is the shortest TTL of a record.
const minRecordTTL = time.Second

// PutOptions are for Put, CompareAndSwap and PutOp; nil is the default: the record stays until it is deleted.
type PutOptions struct {
	// TTL removes the record that long after this write, 1 s to 366 days, unless it is written again. The shard's owner counts by its own clock: never
	// less, and a quarter of it more each time that an owner dies. Zero: no limit.
	TTL time.Duration
	// Ephemeral makes the record go with the session that writes it: the view's, or else this node's own with the shard, which ends when
	// the process does, or when it cannot renew it for Config.SessionTTL. Not with TTL.
	Ephemeral bool
}

// Get returns the record of key. The read is linearizable: it sees every write that was acknowledged anywhere before it began. At
// the shard's owner it costs no network. Errors: ErrNotFound, ErrNoQuorum when no owner was reached in time, ErrTooLarge,
// ErrInvalid, ErrClosed.
func (s *Shard) Get(ctx context.Context, key string) (Record, error) {
	if err := checkKey("get", key); err != nil {
		return Record{}, err
	}
	if rec, done, err := s.getHere(key); done {
		return rec, err
	}
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return Record{}, fmt.Errorf("get %q: %w", key, err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return Record{}, err
	}
	var res *wire.ReadResult
	if s.stale > 0 {
		res = g.getStale(ctx, s.stale, key)
	}
	if res == nil {
		reply, _, err := g.ask(ctx, "get", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Read{Read: &wire.Read{Key: []byte(key)}}})
		if err != nil {
			return Record{}, err
		}
		res = reply.GetRead()
	}
	if !res.GetFound() {
		return Record{}, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	return recordOf(res.GetRecord()), nil
}

// getHere reads at once if this node owns the shard.
func (s *Shard) getHere(key string) (rec Record, done bool, err error) {
	g := s.n.group(s.ID())
	if s.err != nil || g == nil || g.local == nil || s.ID() == 0 || !s.n.life.calls.enter() {
		return Record{}, false, nil
	}
	defer s.n.life.calls.leave()
	r, found, ok := g.read(key)
	switch {
	case !ok:
		return Record{}, false, nil
	case !found:
		return Record{}, true, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	return Record{Key: key, Value: r.Value, Create: r.Create, Mod: r.Mod, Version: r.Version, Ephemeral: r.Session != 0}, true, nil
}

// read reads from this node's state, if the lease is good after the read: until then no other owner can have changed anything.
func (g *group) read(key string) (rec fsm.Record, found, ok bool) {
	if g.local == nil {
		return fsm.Record{}, false, false
	}
	o := g.local.own.Load() // whether it is good is seen after the read
	if o == nil || o.leaving.Load() {
		return fsm.Record{}, false, false
	}
	rec, err := o.l.machine.Load().Get([]byte(key))
	if err != nil && !errors.Is(err, fsm.ErrNotFound) {
		return fsm.Record{}, false, false
	}
	if !o.good() {
		return fsm.Record{}, false, false
	}
	return rec, err == nil, true
}

// readOf reads a record for another node's Get; nil: the state cannot be read.
func readOf(m *fsm.Machine, q *wire.Read) *wire.ReadResult {
	var rec fsm.Record
	var err error
	if q.GetAt() == 0 {
		rec, err = m.Get(q.GetKey())
	} else {
		rec, err = m.GetAt(q.GetKey(), Revision(q.GetAt()))
	}
	var compacted *fsm.CompactedError
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return &wire.ReadResult{}
	case errors.As(err, &compacted):
		return &wire.ReadResult{Compacted: uint64(compacted.Oldest)}
	case err != nil:
		return nil
	}
	return &wire.ReadResult{Found: true, Record: wireRecord(&rec)}
}

func recordOf(r *fsmpb.Record) Record {
	return Record{
		Key:       string(r.GetKey()),
		Value:     r.GetValue(),
		Create:    Revision(r.GetCreate()),
		Mod:       Revision(r.GetMod()),
		Version:   r.GetVersion(),
		Ephemeral: r.GetSession() != 0,
	}
}

// Put writes key, 1 to 1024 bytes, with a value of at most 512 KiB, and returns the revision of the change. Success means that
// it is on the disks of a majority. ErrUnknown: it may have been done. Any other error: it was not: ErrNoQuorum, ErrFenced
// through a guarded view, ErrTooLarge, ErrInvalid, ErrClosed. It does not keep value.
func (s *Shard) Put(ctx context.Context, key string, value []byte, o *PutOptions) (Revision, error) {
	if err := checkPut("put", key, value, o); err != nil {
		return 0, err
	}
	res, err := s.write(ctx, "put", &fsmpb.Op{Kind: &fsmpb.Op_Put{Put: putMessage(key, value, o)}})
	return Revision(res.GetRevision()), err
}

// Delete removes key and returns the revision of the change, 0 if there was none to remove. Errors are those of Put.
func (s *Shard) Delete(ctx context.Context, key string) (Revision, error) {
	if err := checkKey("delete", key); err != nil {
		return 0, err
	}
	res, err := s.write(ctx, "delete", &fsmpb.Op{Kind: &fsmpb.Op_Delete{Delete: &fsmpb.Delete{Key: []byte(key)}}})
	return Revision(res.GetRevision()), err
}

// CompareAndSwap writes key only if its record was last changed at revision old; 0 means that there must be no record. ErrConflict:
// it is at another revision, and nothing was done. Other errors are those of Put.
func (s *Shard) CompareAndSwap(ctx context.Context, key string, old Revision, value []byte, o *PutOptions) (Revision, error) {
	if err := checkPut("compare and swap", key, value, o); err != nil {
		return 0, err
	}
	put := putMessage(key, value, o)
	res, err := s.write(ctx, "compare and swap", &fsmpb.Op{Kind: &fsmpb.Op_CompareAndSwap{CompareAndSwap: &fsmpb.CompareAndSwap{
		Key: put.Key, Expect: uint64(old), Value: put.Value, Ttl: put.Ttl, Ephemeral: put.Ephemeral,
	}}})
	return Revision(res.GetRevision()), err
}

// putMessage is the command of a Put. It copies what it gets.
func putMessage(key string, value []byte, o *PutOptions) *fsmpb.Put {
	m := &fsmpb.Put{Key: []byte(key), Value: bytes.Clone(value)}
	if o != nil {
		m.Ttl, m.Ephemeral = int64(o.TTL), o.Ephemeral
	}
	return m
}

func checkPut(what, key string, value []byte, o *PutOptions) error {
	if err := checkRecord(what, key, value); err != nil {
		return err
	}
	return o.check(what)
}

// check refuses options that no record can have.
func (o *PutOptions) check(what string) error {
	switch {
	case o == nil:
		return nil
	case o.TTL != 0 && (o.TTL < minRecordTTL || o.TTL > fsm.MaxRecordTTL):
		return fmt.Errorf("%s: %w: a TTL of %v: give %v to %v, or zero for none", what, ErrInvalid, o.TTL, minRecordTTL, fsm.MaxRecordTTL)
	case o.TTL != 0 && o.Ephemeral:
		return fmt.Errorf("%s: %w: a record has a TTL or is ephemeral, not both", what, ErrInvalid)
	}
	return nil
}

func checkKey(what, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%s: %w: the key is empty: give 1 to %d bytes", what, ErrInvalid, fsm.MaxKey)
	case len(key) > fsm.MaxKey:
		return fmt.Errorf("%s: %w: the key has %d bytes, at most %d are allowed", what, ErrTooLarge, len(key), fsm.MaxKey)
	}
	return nil
}

func checkRecord(what, key string, value []byte) error {
	if err := checkKey(what, key); err != nil {
		return err
	}
	if len(value) > fsm.MaxValue {
		return fmt.Errorf("%s: %w: the value has %d bytes, at most %d are allowed", what, ErrTooLarge, len(value), fsm.MaxValue)
	}
	return nil
}
