package node

import (
	"bytes"
	"context"
	"fmt"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// Txn is a transaction: if all conditions hold, Then is done, else Else; either all of it or nothing. Conditions and the longer branch together have at
// most 128 elements and 1 MiB. A branch changes no key twice; its reads see the state before it.
type Txn struct {
	If         []Cond
	Then, Else []Op
}

// A CondTarget is what of a record a condition looks at.
type CondTarget uint8

// Targets of conditions.
const (
	CondExists  CondTarget = iota // whether there is a record: Number 1 or 0, only with Equal
	CondValue                     // its value, compared as bytes; without a record only NotEqual holds
	CondVersion                   // its version, 0 without a record
	CondMod                       // the revision of its last change, 0 without a record
	CondCreate                    // the revision that made it, 0 without a record
)

// A Compare is how a condition compares what it finds with what it names.
type Compare uint8

// Comparisons. What is found stands on the left.
const (
	Equal Compare = iota
	NotEqual
	Less
	Greater
)

// A Cond is one condition of a Txn. The functions KeyExists, KeyAbsent, ValueIs and ModIs make the usual ones.
type Cond struct {
	Key     string
	Target  CondTarget
	Compare Compare
	Value   []byte // of CondValue
	Number  int64  // of the others
}

// KeyExists holds if there is a record.
func KeyExists(key string) Cond { return Cond{Key: key, Number: 1} }

// KeyAbsent holds if there is no record.
func KeyAbsent(key string) Cond { return Cond{Key: key} }

// ValueIs holds if there is a record with that value.
func ValueIs(key string, value []byte) Cond { return Cond{Key: key, Target: CondValue, Value: value} }

// ModIs holds if the record was last changed at that revision; 0: if there is none.
func ModIs(key string, r Revision) Cond { return Cond{Key: key, Target: CondMod, Number: int64(r)} }

// An OpKind says what an Op does.
type OpKind uint8

// Kinds of operations in a transaction.
const (
	OpPut OpKind = iota
	OpDelete
	OpGet
	OpAdd
)

// An Op is one operation of a Txn. The functions PutOp, DeleteOp, GetOp and AddOp make them.
type Op struct {
	Kind    OpKind
	Key     string
	Value   []byte     // of OpPut
	Options PutOptions // of OpPut
	Delta   int64      // of OpAdd
}

// PutOp writes a record.
func PutOp(key string, value []byte, o *PutOptions) Op {
	op := Op{Kind: OpPut, Key: key, Value: value}
	if o != nil {
		op.Options = *o
	}
	return op
}

// DeleteOp removes a record, if there is one.
func DeleteOp(key string) Op { return Op{Kind: OpDelete, Key: key} }

// GetOp reads a record as it was before the transaction.
func GetOp(key string) Op { return Op{Kind: OpGet, Key: key} }

// AddOp adds to a counter, see Shard.Add.
func AddOp(key string, delta int64) Op { return Op{Kind: OpAdd, Key: key, Delta: delta} }

// TxnResult is what became of a transaction.
type TxnResult struct {
	Succeeded bool       // the conditions held: Then was done, else Else
	Revision  Revision   // of its changes, which share one; without any, the shard's when it was done
	Results   []OpResult // one for each operation of the branch
}

// OpResult is what became of one operation of a transaction.
type OpResult struct {
	Found  bool   // of OpGet: there was a record; of OpDelete: it was removed
	Record Record // of OpGet
	Number int64  // of OpAdd: the sum
}

// Txn does a transaction, atomically and once. Errors are those of Put; ErrInvalid also if an AddOp meets a value that is no number, in which case nothing
// was done. That the conditions do not hold is no error.
func (s *Shard) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	if err := t.check(); err != nil {
		return TxnResult{}, err
	}
	msg := &fsmpb.Txn{Then: txnOps(t.Then), Else: txnOps(t.Else)}
	for _, c := range t.If {
		msg.If = append(msg.If, &fsmpb.Condition{
			Key: []byte(c.Key), Target: fsmpb.Condition_Target(c.Target), Compare: fsmpb.Condition_Compare(c.Compare),
			Value: bytes.Clone(c.Value), Number: c.Number,
		})
	}
	res, err := s.write(ctx, "transaction", &fsmpb.Op{Kind: &fsmpb.Op_Txn{Txn: msg}})
	if err != nil {
		return TxnResult{}, err
	}
	branch := t.Then
	if !res.GetSucceeded() {
		branch = t.Else
	}
	out := TxnResult{Succeeded: res.GetSucceeded(), Revision: Revision(res.GetRevision()), Results: make([]OpResult, len(branch))}
	if len(res.GetAnswers()) != len(branch) {
		return TxnResult{}, fmt.Errorf("transaction: %w: it was done, with %d answers for %d operations", ErrUnknown, len(res.GetAnswers()), len(branch))
	}
	for i, a := range res.GetAnswers() {
		out.Results[i] = OpResult{Found: a.GetFound() || a.GetDeleted(), Number: a.GetNumber()}
		if a.GetRecord() != nil {
			out.Results[i].Record = recordOf(a.GetRecord())
		}
	}
	if res.GetTrimmed() {
		return s.readAgain(ctx, branch, out)
	}
	return out, nil
}

// readAgain fetches what a repeated transaction has read: the stored result of a long one has the records without their values.
func (s *Shard) readAgain(ctx context.Context, branch []Op, r TxnResult) (TxnResult, error) {
	before := r.Revision
	for i, op := range branch {
		if op.Kind == OpPut || op.Kind == OpAdd || op.Kind == OpDelete && r.Results[i].Found {
			before = r.Revision - 1
			break
		}
	}
	for i, op := range branch {
		if op.Kind != OpGet || !r.Results[i].Found {
			continue
		}
		rec, err := s.getAt(ctx, op.Key, before)
		if err != nil {
			return TxnResult{}, fmt.Errorf("transaction: %w: it was done, and what it read is lost: %w", ErrUnknown, err)
		}
		r.Results[i].Record = rec
	}
	return r, nil
}

func txnOps(ops []Op) []*fsmpb.TxnOp {
	out := make([]*fsmpb.TxnOp, len(ops))
	for i, op := range ops {
		key := []byte(op.Key)
		switch op.Kind {
		case OpPut:
			out[i] = &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Put{Put: putMessage(op.Key, op.Value, &op.Options)}}
		case OpDelete:
			out[i] = &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Delete{Delete: &fsmpb.Delete{Key: key}}}
		case OpGet:
			out[i] = &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Read{Read: &fsmpb.Read{Key: key}}}
		case OpAdd:
			out[i] = &fsmpb.TxnOp{Kind: &fsmpb.TxnOp_Add{Add: &fsmpb.Add{Key: key, Delta: op.Delta}}}
		}
	}
	return out
}

// check refuses what the state machine would refuse.
func (t Txn) check() error {
	const what = "transaction"
	if n := len(t.If) + max(len(t.Then), len(t.Else)); n > fsm.MaxTxnOps {
		return fmt.Errorf("%s: %w: %d conditions and operations, at most %d are allowed", what, ErrTooLarge, n, fsm.MaxTxnOps)
	}
	size := 0
	for _, c := range t.If {
		if err := checkRecord(what, c.Key, c.Value); err != nil {
			return err
		}
		if c.Target > CondCreate || c.Compare > Greater || c.Target == CondExists && (c.Compare != Equal || c.Number < 0 || c.Number > 1) {
			return fmt.Errorf("%s: %w: condition on %q", what, ErrInvalid, c.Key)
		}
		size += len(c.Key) + len(c.Value)
	}
	for _, branch := range [][]Op{t.Then, t.Else} {
		n, err := checkBranch(what, branch)
		if err != nil {
			return err
		}
		size += n
	}
	if size > fsm.MaxTxnBytes {
		return fmt.Errorf("%s: %w: %d bytes of keys and values, at most %d are allowed", what, ErrTooLarge, size, fsm.MaxTxnBytes)
	}
	return nil
}

func checkBranch(what string, branch []Op) (size int, err error) {
	changed := map[string]bool{}
	for _, op := range branch {
		if err := checkRecord(what, op.Key, op.Value); err != nil {
			return 0, err
		}
		if err := op.Options.check(what); err != nil {
			return 0, err
		}
		switch {
		case op.Kind > OpAdd:
			return 0, fmt.Errorf("%s: %w: an operation of kind %d", what, ErrInvalid, op.Kind)
		case op.Kind != OpGet && changed[op.Key]:
			return 0, fmt.Errorf("%s: %w: %q is changed twice", what, ErrInvalid, op.Key)
		}
		changed[op.Key] = changed[op.Key] || op.Kind != OpGet
		size += len(op.Key) + len(op.Value)
	}
	return size, nil
}

// getAt is Get as of an earlier revision.
func (s *Shard) getAt(ctx context.Context, key string, at Revision) (Record, error) {
	ctx, end, err := s.n.begin(ctx, true)
	if err != nil {
		return Record{}, fmt.Errorf("get %q: %w", key, err)
	}
	defer end()
	g, err := s.group(ctx)
	if err != nil {
		return Record{}, err
	}
	reply, _, err := g.ask(ctx, "get", &wire.OwnerRequest{Ask: &wire.OwnerRequest_Read{Read: &wire.Read{Key: []byte(key), At: uint64(at)}}})
	read := reply.GetRead()
	switch {
	case err != nil:
		return Record{}, err
	case read.GetCompacted() != 0:
		return Record{}, fmt.Errorf("get %q: %w", key, &CompactedError{Oldest: Revision(read.GetCompacted())})
	case !read.GetFound():
		return Record{}, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	return recordOf(read.GetRecord()), nil
}
