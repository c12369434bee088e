//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// errNotOnce: a customer was not billed exactly once.
var errNotOnce = errors.New("not every customer was billed exactly once")

// An audit is what the ledger file says about the customers.
type audit struct {
	charges map[string][]entry // by customer, in the order of the file
	missing []string           // customers without a charge
	twice   []string           // customers with more than one
	late    []entry            // lines with a lower token than a line of the same shard before them
}

// auditFile reads the ledger again, from the first line, and believes nothing that any process said.
func auditFile(path string, customers int) (*audit, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	entries, _, err := parse(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	a := &audit{charges: map[string][]entry{}}
	highest := map[int]entry{}
	for _, e := range entries {
		if e.Customer != "" {
			a.charges[e.Customer] = append(a.charges[e.Customer], e)
		}
		if e.Token < highest[e.Shard].Token {
			a.late = append(a.late, e)
		} else {
			highest[e.Shard] = e
		}
	}
	for i := 1; i <= customers; i++ {
		switch c := customer(i); len(a.charges[c]) {
		case 0:
			a.missing = append(a.missing, c)
		case 1:
		default:
			a.twice = append(a.twice, c)
		}
	}
	return a, nil
}

// err is nil if each customer was billed exactly once, and no line came from a former owner.
func (a *audit) err() error {
	if len(a.missing)+len(a.twice)+len(a.late) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d without a charge, %d with several, %d lines of former owners",
		errNotOnce, len(a.missing), len(a.twice), len(a.late))
}

// explain says what happened to a customer with more than one charge.
func (a *audit) explain(customer string) string {
	c := a.charges[customer]
	first, last := c[0], c[len(c)-1]
	if slices.Contains(a.late, last) {
		return fmt.Sprintf("%s: the charge by %s under token %d was overwritten by %s under the older token %d",
			customer, first.By, first.Token, last.By, last.Token)
	}
	return fmt.Sprintf("%s: billed %d times, by %s under token %d and by %s under token %d",
		customer, len(c), first.By, first.Token, last.By, last.Token)
}
