package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// appendResult appends the longer layout if the result has something that only operations on several records, or on numbers,
// answer.
func appendResult(b []byte, res *fsmpb.Result) []byte {
	long := isLong(res)
	if long {
		b = append(b, longer)
	} else {
		b = append(b, layout)
	}
	b = append(b, byte(res.Status))
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
	b = appendRecordOf(b, res.Record)
	b = appendFlag(b, res.Job != nil)
	if res.Job != nil {
		b = appendJobMessage(b, res.Job)
	}
	if long {
		b = appendAnswers(b, res)
	}
	return b
}

func decodeResult(b []byte) (*fsmpb.Result, error) {
	r, long := readEither(b)
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
	var err error
	if res.Record, err = r.record(); err != nil {
		return nil, err
	}
	if r.flag() {
		if res.Job, err = decodeJobMessage(r.bytes(MaxName), r.bytes(len(b))); err != nil {
			return nil, err
		}
	}
	if long {
		if err := r.answers(res); err != nil {
			return nil, err
		}
		r.bad = r.bad || !isLong(res)
	}
	return res, r.done("result")
}

// isLong reports whether a result has to be stored in the longer layout.
func isLong(res *fsmpb.Result) bool {
	return res.Number != 0 || res.More || res.Deleted != 0 || res.Succeeded || len(res.Answers) > 0
}

func appendAnswers(b []byte, res *fsmpb.Result) []byte {
	b = appendFlag(appendFlag(b, res.More), res.Succeeded)
	b = binary.AppendVarint(b, res.Number)
	b = binary.AppendUvarint(b, res.Deleted)
	b = binary.AppendUvarint(b, uint64(len(res.Answers)))
	for _, a := range res.Answers {
		b = appendFlag(appendFlag(b, a.Found), a.Deleted)
		b = binary.AppendVarint(b, a.Number)
		b = appendRecordOf(b, a.Record)
	}
	return b
}

func (r *reader) answers(res *fsmpb.Result) error {
	res.More, res.Succeeded = r.flag(), r.flag()
	res.Number, res.Deleted = r.int(), r.uint()
	n := r.uint()
	if r.bad || n > MaxTxnOps {
		return fmt.Errorf("%w: result of %d answers", ErrCorrupt, n)
	}
	for range n {
		a := &fsmpb.TxnAnswer{Found: r.flag(), Deleted: r.flag(), Number: r.int()}
		var err error
		if a.Record, err = r.record(); err != nil {
			return err
		}
		res.Answers = append(res.Answers, a)
	}
	return nil
}

// appendRecordOf appends a record that a result may have.
func appendRecordOf(b []byte, rec *fsmpb.Record) []byte {
	b = appendFlag(b, rec != nil)
	if rec == nil {
		return b
	}
	return appendBytes(appendBytes(b, rec.Key), appendRecord(nil, fromMessage(rec)))
}

func (r *reader) record() (*fsmpb.Record, error) {
	if !r.flag() {
		return nil, nil
	}
	rec, err := decodeRecord(r.bytes(MaxKey), r.bytes(len(r.b)))
	if err != nil {
		return nil, err
	}
	return toMessage(&rec), nil
}

// trim makes the result that is remembered: a large value of a conflicting record, or result of a job, is left out, or
// copies of other nodes' values would fill the memory. So are all values that a transaction has read, if they are many.
func trim(res *fsmpb.Result) *fsmpb.Result {
	if j := res.Job; j != nil && len(j.Result) > keptValue {
		short := &fsmpb.Job{Name: j.Name, Attempt: j.Attempt, Done: j.Done, Token: j.Token, Keep: j.Keep, At: j.At}
		return &fsmpb.Result{Status: res.Status, Job: short, Trimmed: true}
	}
	if res.Record != nil && len(res.Record.Value) > keptValue {
		return &fsmpb.Result{Status: res.Status, Record: withoutValue(res.Record), Trimmed: true}
	}
	return bounded(res, keptAnswers)
}

// bounded leaves the values out that a transaction has read if they are more than limit bytes.
func bounded(res *fsmpb.Result, limit int) *fsmpb.Result {
	size := 0
	for _, a := range res.Answers {
		size += len(a.GetRecord().GetValue())
	}
	if size <= limit {
		return res
	}
	short := &fsmpb.Result{Status: res.Status, Revision: res.Revision, Succeeded: res.Succeeded, Trimmed: true}
	for _, a := range res.Answers {
		if a.Record != nil {
			a = &fsmpb.TxnAnswer{Found: a.Found, Record: withoutValue(a.Record)}
		}
		short.Answers = append(short.Answers, a)
	}
	return short
}

func withoutValue(rec *fsmpb.Record) *fsmpb.Record {
	short := fromMessage(rec)
	short.Value = nil
	return toMessage(short)
}
