package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql" // the driver of MySQL and MariaDB
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	_ "modernc.org/sqlite"             // the driver of SQLite

	"github.com/oarlock/oarlock/node/fence"
)

// They have the connection strings of servers that the tests may make schemas on.
const (
	postgresEnv = "OARLOCK_POSTGRES"
	mysqlEnv    = "OARLOCK_MYSQL" // of MySQL or MariaDB
)

// database is a database with a table of tokens and a log of writes, of one test alone.
type database struct {
	db    *sql.DB
	fence fence.SQL
	log   string // the table of writes
	entry string // the statement that adds to it
}

// eachDatabase runs the test on SQLite, and on PostgreSQL and MySQL if there is a server.
func eachDatabase(t *testing.T, test func(*testing.T, *database)) {
	t.Run("SQLite", func(t *testing.T) { test(t, sqlite(t)) })
	for _, server := range []struct {
		name, env string
		open      func(*testing.T, string) *database
	}{{"PostgreSQL", postgresEnv, postgres}, {"MySQL", mysqlEnv, mysqlServer}} {
		dsn := os.Getenv(server.env)
		if dsn == "" {
			t.Logf("left out on %s: %s names no server", server.name, server.env)
			continue
		}
		t.Run(server.name, func(t *testing.T) { test(t, server.open(t, dsn)) })
	}
}

func mysqlServer(t *testing.T, dsn string) *database {
	d := &database{db: open(t, "mysql", dsn)}
	schema := fmt.Sprintf("fence_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := d.db.ExecContext(t.Context(), "CREATE DATABASE "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.db.ExecContext(context.Background(), "DROP DATABASE "+schema); err != nil {
			t.Error(err)
		}
	})
	d.fence, d.log = fence.SQL{Dialect: fence.MySQL, Table: schema + ".tokens"}, schema+".writes"
	return d.setUp(t)
}

func sqlite(t *testing.T) *database {
	file := filepath.Join(t.TempDir(), "test.db")
	d := &database{
		db:    open(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"),
		fence: fence.SQL{Dialect: fence.SQLite, Table: "main.tokens"}, log: "writes",
	}
	return d.setUp(t)
}

func postgres(t *testing.T, dsn string) *database {
	d := &database{db: open(t, "pgx", dsn)}
	schema := fmt.Sprintf("fence_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := d.db.ExecContext(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.db.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	d.fence, d.log = fence.SQL{Dialect: fence.Postgres, Table: schema + ".tokens"}, schema+".writes"
	return d.setUp(t)
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func (d *database) setUp(t *testing.T) *database {
	t.Helper()
	if err := d.fence.Setup(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.ExecContext(t.Context(), "CREATE TABLE "+d.log+" (n integer, token bigint)"); err != nil {
		t.Fatal(err)
	}
	d.entry = "INSERT INTO " + d.log + " SELECT count(*) + 1, %d FROM " + d.log
	return d
}

func (d *database) begin(t *testing.T, o *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// write adds the token to the log of writes.
func (d *database) write(ctx context.Context, tx *sql.Tx, token uint64) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf(d.entry, token))
	return err
}

func (d *database) writes(token uint64) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error { return d.write(ctx, tx, token) }
}

func (d *database) do(t *testing.T, resource string, token uint64) error {
	return d.fence.Do(t.Context(), d.db, resource, token, d.writes(token))
}

func (d *database) mustDo(t *testing.T, resource string, token uint64) {
	t.Helper()
	if err := d.do(t, resource, token); err != nil {
		t.Fatalf("token %d on %q: got %v, want it accepted", token, resource, err)
	}
}

// written lists the tokens of the writes in their order. It fails the test if two of them did not see each other.
func (d *database) written(t *testing.T) (tokens []uint64) {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), "SELECT n, token FROM "+d.log+" ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var token uint64
		if err := rows.Scan(&n, &token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
		if n != len(tokens) {
			t.Fatalf("write %d has number %d", len(tokens), n)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tokens
}

func (d *database) wantWritten(t *testing.T, want ...uint64) {
	t.Helper()
	if diff := cmp.Diff(want, d.written(t)); diff != "" {
		t.Errorf("tokens of the writes: %s", diff)
	}
}

// again tells whether the database did nothing and asks to try again.
func (d *database) again(err error) bool {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return my.Number == 1213 // deadlock
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "40001"
}

// backend is the process of PostgreSQL that serves tx, 0 for another database.
func (d *database) backend(t *testing.T, tx *sql.Tx) (pid int) {
	t.Helper()
	if d.fence.Dialect != fence.Postgres {
		return 0
	}
	if err := tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitBlocked returns when somebody waits for a lock of the backend, or need not wait any more as told is closed. Other databases
// cannot tell: there it returns at once, and who asks may wait already, or be about to.
func (d *database) awaitBlocked(t *testing.T, backend int, told <-chan struct{}) {
	t.Helper()
	for blocked := backend == 0; !blocked; {
		select {
		case <-told:
			return
		default:
		}
		err := d.db.QueryRowContext(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", backend).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
	}
}
