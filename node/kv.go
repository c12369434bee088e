package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"

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

// PutOptions are for Put and CompareAndSwap; nil is the default. It is empty until records can expire.
type PutOptions struct{}

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
	reply, _, err := g.ask(ctx, "get", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Read{Read: &wire.Read{Key: []byte(key)}}})
	switch {
	case err != nil:
		return Record{}, err
	case !reply.GetRead().GetFound():
		return Record{}, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	return recordOf(reply.GetRead().GetRecord()), nil
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

// read is the answer to another node's Get; nil: the state cannot be read.
func (o *ownership) read(q *wire.Read) *wire.ReadResult {
	rec, err := o.l.machine.Load().Get(q.GetKey())
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return &wire.ReadResult{}
	case err != nil:
		return nil
	}
	return &wire.ReadResult{Found: true, Record: &fsmpb.Record{
		Key: q.GetKey(), Value: rec.Value, Create: uint64(rec.Create), Mod: uint64(rec.Mod), Version: rec.Version, Session: uint64(rec.Session),
	}}
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
func (s *Shard) Put(ctx context.Context, key string, value []byte, _ *PutOptions) (Revision, error) {
	if err := checkRecord("put", key, value); err != nil {
		return 0, err
	}
	res, err := s.write(ctx, "put", &fsmpb.Op{Kind: &fsmpb.Op_Put{Put: &fsmpb.Put{Key: []byte(key), Value: bytes.Clone(value)}}})
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
func (s *Shard) CompareAndSwap(ctx context.Context, key string, old Revision, value []byte, _ *PutOptions) (Revision, error) {
	if err := checkRecord("compare and swap", key, value); err != nil {
		return 0, err
	}
	res, err := s.write(ctx, "compare and swap", &fsmpb.Op{Kind: &fsmpb.Op_CompareAndSwap{CompareAndSwap: &fsmpb.CompareAndSwap{
		Key: []byte(key), Expect: uint64(old), Value: bytes.Clone(value),
	}}})
	return Revision(res.GetRevision()), err
}

func checkKey(what, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%s: %w: the key is empty", what, ErrInvalid)
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
