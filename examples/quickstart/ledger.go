//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/oarlock/oarlock/node"
)

// errFenced: the ledger has seen a newer owner of the shard. Nothing was written.
var errFenced = errors.New("the ledger has seen a newer token")

// entry is one line of the ledger: a charge, or, without a customer, an owner that showed its token.
type entry struct {
	Shard    int        `json:"shard"`
	Token    node.Token `json:"token"`
	By       string     `json:"by"`
	Customer string     `json:"customer,omitempty"`
	Cents    int        `json:"cents,omitempty"`
}

// A ledger is the resource that must be protected: a file of lines, shared by all processes. It knows nothing of clusters. All it
// does for safety is to remember, for each shard, the highest token that it has seen, and to refuse lower ones. A database does the
// same with a column: UPDATE … WHERE token <= $1.
type ledger struct {
	path   string
	by     string // the process that writes
	fenced bool   // false: leave out the check
}

// Open shows the ledger the token of the shard's new owner and returns the customers of the shard that are billed already.
func (l *ledger) Open(shard int, t node.Token) (billed map[string]bool, err error) {
	billed = map[string]bool{}
	err = l.locked(func(f *os.File, entries []entry) error {
		if err := l.check(entries, shard, t); err != nil {
			return err
		}
		for _, e := range entries {
			if e.Shard == shard && e.Customer != "" {
				billed[e.Customer] = true
			}
		}
		return add(f, entry{Shard: shard, Token: t, By: l.by})
	})
	return billed, err
}

// Charge bills a customer under the token of the shard's owner. The check and the write are one step: nobody comes in between.
func (l *ledger) Charge(customer string, shard int, t node.Token) error {
	return l.locked(func(f *os.File, entries []entry) error {
		if err := l.check(entries, shard, t); err != nil {
			return err
		}
		return add(f, entry{Shard: shard, Token: t, By: l.by, Customer: customer, Cents: 1999})
	})
}

// check is the fencing check.
func (l *ledger) check(entries []entry, shard int, t node.Token) error {
	if !l.fenced {
		return nil
	}
	for _, e := range entries {
		if e.Shard == shard && e.Token > t {
			return fmt.Errorf("shard %d: %w: %d, not %d", shard, errFenced, e.Token, t)
		}
	}
	return nil
}

// locked runs f while no other process reads or writes the ledger. A line that a killed process left unfinished is removed before.
func (l *ledger) locked(f func(*os.File, []entry) error) (err error) {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }() // which also unlocks
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the ledger: %w", err)
	}
	entries, size, err := parse(file)
	if err != nil {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	if _, err := file.Seek(size, io.SeekStart); err != nil {
		return err
	}
	return f(file, entries)
}

// parse reads all complete lines, and says where they end.
func parse(r io.Reader) (entries []entry, size int64, err error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, err
	}
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			return entries, size, nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("line %d of the ledger: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
		size += int64(len(line)) + 1
		b = rest
	}
}

// add writes a line and has it on the disk when it returns.
func add(f *os.File, e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
