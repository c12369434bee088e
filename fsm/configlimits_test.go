package fsm

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// Each limit of an operation on config records, at it, just beyond and far beyond: what is beyond is refused with a reason, and
// changes nothing.
func TestMachine_Apply_ConfigLimits(t *testing.T) {
	s := owned(t)
	id := s.session("n")
	k, longest, over := "k", strings.Repeat("k", MaxKey), strings.Repeat("k", MaxKey+1)
	full := strings.Repeat("v", MaxValue)
	casTTL := func(ttl time.Duration) *fsmpb.Op {
		op := casOp("c", 99, "")
		op.GetCompareAndSwap().Ttl = int64(ttl)
		return op
	}
	refs := func(n int) (refs []*fsmpb.RecordRef) {
		for range n {
			refs = append(refs, ref(k, 1, 0))
		}
		return refs
	}
	both := ephemeralOp(id, 1, k, "")
	both.GetPut().Ttl = 1
	bothCAS := by(id, 2, 0, casTTL(1))
	bothCAS.GetCompareAndSwap().Ephemeral = true
	bareCAS := casOp("c", 0, "")
	bareCAS.GetCompareAndSwap().Ephemeral = true
	bareTxn := txnOp(nil, part(ephemeralOp(0, 0, k, "")))
	good := map[string]*fsmpb.Op{
		"TTLNone": ttlOp(k, "", 0), "TTLOne": ttlOp(k, "", 1), "TTLMost": ttlOp(k, "", MaxRecordTTL), "KeyMost": ttlOp(longest, full, 1),
		"PrefixMost": prefixOp(longest), "AddKeyMost": addOp(strings.Repeat("a", MaxKey), 1), "RefsNone": expireOp(), "RefsMost": expireOp(refs(MaxRefs)...),
		"AgesMost": ageOp(refs(MaxRefs)...), "AgeMost": ageOp(ref(longest, math.MaxUint64, math.MaxInt64)),
	}
	bad := map[string]*fsmpb.Op{
		"TTLNegative": ttlOp(k, "", -1), "TTLOver": ttlOp(k, "", MaxRecordTTL+1), "TTLFarOver": ttlOp(k, "", math.MaxInt64), "TTLFarBelow": ttlOp(k, "", math.MinInt64),
		"SwapTTLNegative": casTTL(-1), "SwapTTLOver": casTTL(MaxRecordTTL + 1), "Both": both, "SwapBoth": bothCAS,
		"EphemeralWithoutSession": ephemeralOp(0, 0, k, ""), "SwapWithoutSession": bareCAS, "TxnWithoutSession": bareTxn,
		"PutKeyEmpty": ttlOp("", "", 1), "PutKeyOver": ttlOp(over, "", 1), "PutValueOver": ttlOp(k, full+"v", 1),
		"PrefixOver": prefixOp(over), "AddKeyEmpty": addOp("", 1), "AddKeyOver": addOp(over, 1),
		"RefsOver": expireOp(refs(MaxRefs + 1)...), "RefsFarOver": expireOp(refs(3 * MaxRefs)...), "AgesOver": ageOp(refs(MaxRefs + 1)...),
		"RefKeyEmpty": expireOp(ref("", 1, 0)), "RefKeyOver": ageOp(ref(over, 1, 0)), "AgeNegative": ageOp(ref(k, 1, -1)),
		"CompactOver": compactOp(math.MaxUint64),
	}
	s.do(putOp(k, "v"))
	for name, op := range bad {
		t.Run("Bad"+name, func(t *testing.T) {
			before := hash(t, s.m)
			op.Session, op.Seq, op.Low = 0, 0, 0
			if strings.HasSuffix(name, "Both") {
				op.Session, op.Seq = uint64(id), 7
				op = guarded(op, fsmpb.Guard_LOCK, "x", 9) // what is malformed is refused before guards
				if res := s.do(op)[0]; res.Status != fsmpb.Result_INVALID {
					t.Errorf("got %v", res)
				}
				return
			}
			if res := s.want(fsmpb.Result_INVALID, op); res.Reason == "" || hash(t, s.m) != before {
				t.Errorf("got %v, state changed %v", res, hash(t, s.m) != before)
			}
		})
	}
	for name, op := range good {
		t.Run(name, func(t *testing.T) { s.want(fsmpb.Result_OK, op) })
	}
}

// The limits of a transaction: operations, bytes, and what makes it no transaction.
func TestMachine_Txn_Limits(t *testing.T) {
	s := owned(t)
	s.do(putOp("k", "v"))
	counted := func(ifs, thens, elses int) *fsmpb.Op {
		op := txnOp(nil)
		for i := range max(ifs, thens, elses) {
			if i < ifs {
				op.GetTxn().If = append(op.GetTxn().If, number("k", exists, eq, 1))
			}
			if i < thens {
				op.GetTxn().Then = append(op.GetTxn().Then, part(putOp(fmt.Sprint(i), "")))
			}
			if i < elses {
				op.GetTxn().Else = append(op.GetTxn().Else, readPart("k"))
			}
		}
		return op
	}
	// sized has keys and values of n bytes in all, in every place where there can be any.
	sized := func(n int) *fsmpb.Op {
		op := otherwise(txnOp(conditions(value("a", ne, strings.Repeat("x", 1000))), part(putOp("b", strings.Repeat("x", MaxValue)))), part(putOp("c", strings.Repeat("x", 500))), part(deleteOp("d")), readPart("e"), part(addOp("f", 1)))
		rest := n - 1000 - MaxValue - 500 - 7
		op.GetTxn().Else = append(op.GetTxn().Else, part(putOp("g", strings.Repeat("x", rest))))
		return op
	}
	twice := func(first, second *fsmpb.Op) *fsmpb.Op { return txnOp(nil, part(first), part(second)) }
	long := strings.Repeat("k", MaxKey+1)
	for name, c := range map[string]struct {
		op   *fsmpb.Op
		want fsmpb.Result_Status
	}{
		"Most":          {counted(0, MaxTxnOps, MaxTxnOps), fsmpb.Result_OK},
		"MostTogether":  {counted(100, 28, 5), fsmpb.Result_OK},
		"BelowMost":     {counted(100, 27, 27), fsmpb.Result_OK},
		"MostIfs":       {counted(MaxTxnOps, 0, 0), fsmpb.Result_OK},
		"Over":          {counted(0, MaxTxnOps+1, 0), fsmpb.Result_INVALID},
		"OverElse":      {counted(0, 0, MaxTxnOps+1), fsmpb.Result_INVALID},
		"OverTogether":  {counted(100, 5, 29), fsmpb.Result_INVALID},
		"OverIfs":       {counted(MaxTxnOps+1, 0, 0), fsmpb.Result_INVALID},
		"FarOver":       {counted(5000, 5000, 5000), fsmpb.Result_INVALID},
		"Bytes":         {sized(MaxTxnBytes), fsmpb.Result_OK},
		"BytesBelow":    {sized(MaxTxnBytes - 1), fsmpb.Result_OK},
		"BytesOver":     {sized(MaxTxnBytes + 1), fsmpb.Result_INVALID},
		"TwicePut":      {twice(putOp("k", ""), putOp("k", "")), fsmpb.Result_INVALID},
		"TwiceMixed":    {twice(deleteOp("k"), addOp("k", 1)), fsmpb.Result_INVALID},
		"TwiceInElse":   {otherwise(txnOp(nil), part(putOp("k", "")), part(deleteOp("k"))), fsmpb.Result_INVALID},
		"OnceInEach":    {otherwise(txnOp(nil, part(putOp("k", "1"))), part(putOp("k", "2"))), fsmpb.Result_OK},
		"ReadTwice":     {txnOp(nil, readPart("k"), part(putOp("k", "v")), readPart("k")), fsmpb.Result_OK},
		"KeyEmpty":      {txnOp(nil, part(putOp("", ""))), fsmpb.Result_INVALID},
		"ReadKeyEmpty":  {txnOp(nil, readPart("")), fsmpb.Result_INVALID},
		"ReadKeyOver":   {txnOp(nil, readPart(long)), fsmpb.Result_INVALID},
		"DeleteKeyOver": {otherwise(txnOp(nil), part(deleteOp(long))), fsmpb.Result_INVALID},
		"AddKeyOver":    {txnOp(nil, part(addOp(long, 1))), fsmpb.Result_INVALID},
		"ValueOver":     {txnOp(nil, part(putOp("k", strings.Repeat("v", MaxValue+1)))), fsmpb.Result_INVALID},
		"TTLOver":       {txnOp(nil, part(ttlOp("k", "", MaxRecordTTL+1))), fsmpb.Result_INVALID},
		"NoKind":        {txnOp(nil, &fsmpb.TxnOp{}), fsmpb.Result_INVALID},
		"IfKeyEmpty":    {txnOp(conditions(value("", eq, ""))), fsmpb.Result_INVALID},
		"IfKeyOver":     {txnOp(conditions(value(long, eq, ""))), fsmpb.Result_INVALID},
		"IfValueOver":   {txnOp(conditions(value("k", eq, strings.Repeat("v", MaxValue+1)))), fsmpb.Result_INVALID},
		"ExistsTwo":     {txnOp(conditions(number("k", exists, eq, 2))), fsmpb.Result_INVALID},
		"ExistsLess":    {txnOp(conditions(number("k", exists, lt, 1))), fsmpb.Result_INVALID},
		"ExistsNot":     {txnOp(conditions(number("k", exists, ne, 1))), fsmpb.Result_INVALID},
		"TargetBelow":   {txnOp(conditions(number("k", -1, eq, 1))), fsmpb.Result_INVALID},
		"CompareBelow":  {txnOp(conditions(number("k", mod, -1, 1))), fsmpb.Result_INVALID},
		"ValueNumber":   {txnOp(conditions(&fsmpb.Condition{Key: []byte("k"), Target: val, Number: 1})), fsmpb.Result_INVALID},
		"NumberValue":   {txnOp(conditions(&fsmpb.Condition{Key: []byte("k"), Target: mod, Value: []byte("1")})), fsmpb.Result_INVALID},
	} {
		t.Run(name, func(t *testing.T) {
			before := hash(t, s.m)
			res := s.want(c.want, c.op)
			if c.want == fsmpb.Result_INVALID && (res.Reason == "" || len(res.Reason) > 200 || hash(t, s.m) != before) {
				t.Errorf("got %v, state changed %v", res, hash(t, s.m) != before)
			}
		})
	}
}

// The largest change there can be, one largest value into another under the longest key, is stored, read and restored.
func TestMachine_Put_LargestChange(t *testing.T) {
	s := owned(t)
	key := strings.Repeat("k", MaxKey)
	s.do(ttlOp(key, strings.Repeat("a", MaxValue), MaxRecordTTL), ttlOp(key, strings.Repeat("b", MaxValue), MaxRecordTTL))
	r := newShard(t, Options{})
	if err := r.m.Restore(newSlowReader(stream(t, s.m)), nil); err != nil {
		t.Fatal(err)
	}
	checkMirror(t, r.m)
	checkHistory(t, r.m)
	if hash(t, r.m) != hash(t, s.m) {
		t.Error("restored: the hash differs")
	}
	if rec, err := r.m.GetAt([]byte(key), 1); err != nil || string(rec.Value) != strings.Repeat("a", MaxValue) {
		t.Errorf("at 1: got %d bytes, %v", len(rec.Value), err)
	}
}
