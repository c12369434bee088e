package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// A Dialect is the kind of SQL that a database speaks.
type Dialect int

// Dialects. The zero Dialect is none.
const (
	Postgres Dialect = iota + 1 // PostgreSQL 9.5 and what speaks as it does: parameters are $1, $2
	SQLite                      // SQLite 3.35: parameters are ?
	MySQL                       // MariaDB 10.2, MySQL 5.7 and later, with InnoDB: parameters are ?. Tested with MariaDB alone
)

// DefaultTable is the table of a SQL that names none.
const DefaultTable = "oarlock_fence"

// SQL checks tokens in a database, in the transaction of the write that they guard: both are done or neither is. A table
// holds the highest token of each resource, one row each, so it survives restarts and serves all processes. Make one for
// each table, as a plain value; it holds nothing and is safe for concurrent use.
type SQL struct {
	// Dialect is what the database speaks. It is required.
	Dialect Dialect
	// Table is the table of tokens, DefaultTable if empty: letters, digits and underscores, at most one dot behind the schema.
	Table string
}

// Setup makes the table if it is not there, and leaves it alone if it is. Call it once, when the program starts or the
// database is migrated; several processes may do so at the same time. It needs the right to create tables; ErrInvalid:
// the SQL has no known dialect, or a table's name that could not be.
func (s SQL) Setup(ctx context.Context, db *sql.DB) error {
	q, err := s.queries()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, q.create)
	if err == nil {
		return nil
	}
	// PostgreSQL reports a conflict to one of two that create it at once: what counts is that it is there.
	if _, probe := db.ExecContext(ctx, q.probe); probe == nil {
		return nil
	}
	return fmt.Errorf("make table %s: %w", s.table(), err)
}

// Check refuses a token smaller than the highest committed for the resource, with a *StaleError: then roll tx back. Else it
// remembers the token, if tx commits, and keeps the resource's row locked until tx ends: so others wait, until ctx ends, and
// no writer slips in between. Call it before the transaction reads or writes anything else. Any isolation level will do; at
// REPEATABLE READ and above PostgreSQL may also answer a conflict with a serialization error, and MySQL at any with a deadlock (1213):
// nothing was done, try again.
// A holder that is paused inside its transaction keeps the row: have the database end transactions that idle.
func (s SQL) Check(ctx context.Context, tx *sql.Tx, resource string, token uint64) error {
	q, err := s.queries()
	if err != nil {
		return err
	}
	if err := validate(resource, token); err != nil {
		return err
	}
	if q.raise != "" {
		if _, err := tx.ExecContext(ctx, q.raise, resource, int64(token)); err != nil {
			return fmt.Errorf("check token %d of %q: %w", token, resource, err)
		}
	}
	args := []any{resource, int64(token)}
	var seen int64
	if err := tx.QueryRowContext(ctx, q.seen, args[:q.args]...).Scan(&seen); err != nil {
		return fmt.Errorf("check token %d of %q: %w", token, resource, err)
	}
	return Compare(resource, token, uint64(seen))
}

// Do runs fn in a transaction of the database's default isolation, after Check let the token in, and commits it. Any error,
// also fn's, rolls back: then neither the write nor the token is kept, and the error is returned as it is. Only an error of
// the commit itself may hide one that was done. fn must use tx for all it does; a panic of its rolls back and goes on.
func (s SQL) Do(ctx context.Context, db *sql.DB, resource string, token uint64, fn func(ctx context.Context, tx *sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin with token %d of %q: %w", token, resource, err)
	}
	defer func() {
		if rb := tx.Rollback(); rb != nil && !errors.Is(rb, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rb))
		}
	}()
	if err := s.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit with token %d of %q: %w", token, resource, err)
	}
	return nil
}

func (s SQL) table() string {
	if s.Table == "" {
		return DefaultTable
	}
	return s.Table
}

// queries are the statements of one dialect.
type queries struct {
	create, probe string
	raise         string // if not empty: raises the token before seen reads it
	seen          string // returns the highest token, with that of the call counted in, and leaves the row locked
	args          int    // how many of (resource, token) seen takes
}

// queries puts the table into the statements. To raise and to read the token is one statement where the database can return
// what it wrote. It locks the row also if it changes nothing, and, at READ COMMITTED, sees what was committed while it waited.
func (s SQL) queries() (queries, error) {
	if !identifier(s.table()) {
		return queries{}, fmt.Errorf("fence.SQL: %w: Table = %q: give letters, digits and underscores", ErrInvalid, s.Table)
	}
	q := queries{args: 2, probe: "SELECT resource, token FROM {} WHERE 1 = 0"}
	switch s.Dialect {
	case Postgres:
		q.create = `CREATE TABLE IF NOT EXISTS {} (resource text COLLATE "C" PRIMARY KEY, token bigint NOT NULL CHECK (token > 0))`
		q.seen = "INSERT INTO {} AS f (resource, token) VALUES ($1, $2) " +
			"ON CONFLICT (resource) DO UPDATE SET token = GREATEST(f.token, excluded.token) RETURNING token"
	case SQLite:
		q.create = "CREATE TABLE IF NOT EXISTS {} (resource TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL CHECK (token > 0))"
		q.seen = "INSERT INTO {} AS f (resource, token) VALUES (?, ?) " +
			"ON CONFLICT (resource) DO UPDATE SET token = max(f.token, excluded.token) RETURNING token"
	case MySQL: // binary, as text there ignores case
		q.create = "CREATE TABLE IF NOT EXISTS {} (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB"
		q.raise = "INSERT INTO {} (resource, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))"
		q.seen, q.args = "SELECT token FROM {} WHERE resource = ? FOR UPDATE", 1
	default:
		return queries{}, fmt.Errorf("fence.SQL: %w: Dialect = %d: give Postgres, SQLite or MySQL", ErrInvalid, s.Dialect)
	}
	for _, text := range []*string{&q.create, &q.probe, &q.raise, &q.seen} {
		*text = strings.ReplaceAll(*text, "{}", s.table())
	}
	return q, nil
}

// identifier tells whether name is a table's, maybe with a schema, that needs no quotes: it goes into the statements as it is.
func identifier(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		return false
	}
	for _, part := range parts {
		if part == "" || part[0] >= '0' && part[0] <= '9' {
			return false
		}
		for _, r := range part {
			if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				return false
			}
		}
	}
	return true
}
