package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/node/fence"
)

// Check refuses smaller tokens, accepts equal ones, remembers what was committed and nothing else, each resource apart: case 15.
func TestSQL_Check_Order(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			resource    string
			token, seen uint64 // seen 0: accepted
			commit      bool
		}{
			{"a", 33, 0, true}, {"a", 33, 0, true}, {"a", 34, 0, true}, {"a", 33, 34, true}, {"a", 34, 0, true},
			{"a", 50, 0, false}, {"a", 40, 0, true}, {"a", 39, 40, true}, // what was rolled back does not count
			{"A", 1, 0, true}, {"a ", 2, 0, true}, {"ä'; --", 3, 0, true}, // other names
			{"a", fence.MaxToken, 0, true}, {"a", fence.MaxToken - 1, fence.MaxToken, true}, {"A", 1, 0, true},
		} {
			tx := d.begin(t, nil)
			err := d.fence.Check(t.Context(), tx, c.resource, c.token)
			if c.seen != 0 {
				wantStale(t, err, c.resource, c.token, c.seen)
			} else if err != nil {
				t.Fatalf("token %d on %q: got %v, want it accepted", c.token, c.resource, err)
			}
			end := tx.Rollback
			if c.commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What is no token, no name, no table or no dialect is refused before the database is asked.
func TestSQL_Invalid(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		tx := d.begin(t, nil)
		defer tx.Rollback()
		for _, token := range []uint64{0, fence.MaxToken + 1} {
			if err := d.fence.Check(t.Context(), tx, "a", token); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("token %d: got %v, want ErrInvalid", token, err)
			}
		}
		bad := []fence.SQL{{}, {Dialect: 99}}
		for _, table := range []string{"a b", "a;drop table x", "1a", "a.", ".a", "a.b.c", `a"`, "ä", "a{}"} {
			bad = append(bad, fence.SQL{Dialect: fence.SQLite, Table: table})
		}
		for _, s := range bad {
			if err := s.Check(t.Context(), tx, "a", 1); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("check with %+v: got %v, want ErrInvalid", s, err)
			}
			if err := s.Setup(t.Context(), d.db); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("setup with %+v: got %v, want ErrInvalid", s, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("the transaction was harmed: %v", err)
		}
	})
}

// Several processes may set the table up at once, and again later, and keep what it has.
func TestSQL_Setup_Concurrent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustDo(t, "a", 5)
		for _, s := range []fence.SQL{d.fence, {Dialect: d.fence.Dialect, Table: d.fence.Table + "2"}} {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { // stops when the table is there
					if err := s.Setup(t.Context(), d.db); err != nil {
						t.Errorf("set up %s: %v", s.Table, err)
					}
				})
			}
			all.Wait()
		}
		wantStale(t, d.do(t, "a", 4), "a", 4, 5)
	})
}

// Do writes in one transaction with the check: an error or a panic of fn undoes both.
func TestSQL_Do_AllOrNothing(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustDo(t, "a", 5)
		fails := errors.New("no funds")
		err := d.fence.Do(t.Context(), d.db, "a", 9, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(d.write(ctx, tx, 9), fails)
		})
		if !errors.Is(err, fails) {
			t.Errorf("got %v, want fn's error", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			d.fence.Do(t.Context(), d.db, "a", 9, func(ctx context.Context, tx *sql.Tx) error {
				panic(d.write(ctx, tx, 9))
			})
		}()
		d.mustDo(t, "a", 6)
		d.wantWritten(t, 5, 6)
		err = d.fence.Do(t.Context(), d.db, "a", 5, func(context.Context, *sql.Tx) error { t.Error("fn ran"); return nil })
		wantStale(t, err, "a", 5, 6)
	})
}

// While a transaction that was let in is open, nobody else is let in, with whatever token; when it ends they are.
func TestSQL_Check_HoldsTheRow(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustDo(t, "a", 1)
		for _, c := range []struct{ holds, waits uint64 }{{33, 34}, {35, 35}} {
			tx := d.begin(t, nil)
			if err := d.fence.Check(t.Context(), tx, "a", c.holds); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			err := d.fence.Do(ctx, d.db, "a", c.waits, d.writes(c.waits))
			cancel()
			if err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("token %d while %d is in: got %v, want it to wait until ctx or the database's patience ends", c.waits, c.holds, err)
			}
			if err := errors.Join(d.write(t.Context(), tx, c.holds), tx.Commit()); err != nil {
				t.Fatal(err)
			}
			d.mustDo(t, "a", c.waits)
		}
		d.wantWritten(t, 1, 33, 34, 35, 35)
	})
}

// Two transactions race, at each level of isolation: the older token waits for the newer one's end, and is refused if that
// committed. If it rolled back, the older one is let in, or told to try again. Case 15.
func TestSQL_Check_Race(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		levels := []sql.IsolationLevel{sql.LevelDefault}
		if d.fence.Dialect == fence.Postgres {
			levels = append(levels, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable)
		}
		for i, level := range levels {
			for _, known := range []bool{true, false} {
				for _, commit := range []bool{true, false} {
					resource := fmt.Sprint(i, known, commit)
					if known {
						d.mustDo(t, resource, 30)
					}
					t.Run(fmt.Sprintf("%v/Known=%v/Commit=%v", level, known, commit), func(t *testing.T) {
						err := d.race(t, resource, &sql.TxOptions{Isolation: level}, commit)
						switch again := d.again(err); {
						case err == nil && !commit, again:
						case errors.Is(err, fence.ErrStale) && commit:
							wantStale(t, err, resource, 33, 34)
						default:
							t.Errorf("token 33 behind 34: got %v", err)
						}
						wantStale(t, d.do(t, resource, 32), resource, 32, map[bool]uint64{true: 34, false: 33}[commit])
					})
				}
			}
		}
	})
}

// race lets 34 in, has 33 wait behind it in a transaction that began before, ends the first and returns what 33 was told. In
// the end 33 is known, if it was not refused.
func (d *database) race(t *testing.T, resource string, o *sql.TxOptions, commit bool) (old error) {
	t.Helper()
	newer, older := d.begin(t, o), d.begin(t, o)
	if err := d.fence.Check(t.Context(), newer, resource, 34); err != nil {
		t.Fatal(err)
	}
	blocker := d.backend(t, newer)
	told := make(chan struct{})
	go func() { // stops when newer has ended
		defer close(told)
		old = d.fence.Check(t.Context(), older, resource, 33)
	}()
	d.awaitBlocked(t, blocker, told)
	end := newer.Rollback
	if commit {
		end = newer.Commit
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	<-told
	if old != nil {
		older.Rollback()
		if d.again(old) && !commit {
			d.mustDo(t, resource, 33)
		}
	} else if err := older.Commit(); err != nil {
		t.Fatal(err)
	}
	return old
}

// With many writers, no write follows one with a larger token, and every refusal was right.
func TestSQL_Do_TokensNeverFall(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		const writers, tokens = 6, 20
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() { // stops when its tokens are used up
				for i := range tokens {
					token := uint64(i + 1 + w%3)
					if err := d.do(t, "a", token); err != nil && !errors.Is(err, fence.ErrStale) {
						t.Errorf("token %d: %v", token, err)
					}
				}
			})
		}
		all.Wait()
		written := d.written(t)
		for i := 1; i < len(written); i++ {
			if written[i] < written[i-1] {
				t.Errorf("write %d has token %d after %d", i, written[i], written[i-1])
			}
		}
		if last := written[len(written)-1]; last != tokens+2 {
			t.Errorf("last token written: got %d, want %d", last, tokens+2)
		}
	})
}
