package fence_test

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/fence"
)

// Every hold of package node is a Holder as it is.
var (
	_ fence.Holder[node.Token] = node.Hold(nil)
	_ fence.Holder[node.Token] = (*node.Lock)(nil)
)

// Under a lock, a row is written in a database that checks its token. The write is done with the check or not at all, and
// the context of the hold ends it early when the lock is lost.
func ExampleSQL() {
	var shard *node.Shard // of an open node
	var db *sql.DB
	tokens := fence.SQL{Dialect: fence.Postgres} // tokens.Setup(ctx, db) once

	bill := func(ctx context.Context, customer string) error {
		lock, err := shard.Lock(ctx, "bill/"+customer, nil)
		if err != nil {
			return err
		}
		defer lock.Unlock(ctx)
		return tokens.Do(lock.Context(ctx), db, "bill/"+customer, uint64(lock.Token()), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE customer = $1", customer)
			return err
		})
	}
	_ = bill
}

// All requests of a client carry the token of a lock, and are not sent any more once it is lost.
func ExampleTransport() {
	put := func(ctx context.Context, lock *node.Lock) error {
		client := &http.Client{Transport: fence.Transport(lock, nil)}
		r, err := http.NewRequestWithContext(lock.Context(ctx), http.MethodPut, "http://bank.internal/accounts/7?balance=90", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return fence.Refused(resp) // a *fence.StaleError if a newer holder was there
	}
	_ = put
}
