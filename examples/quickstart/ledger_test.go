//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/node"
)

func newLedger(t *testing.T, fenced bool) *ledger {
	return &ledger{path: filepath.Join(t.TempDir(), "ledger"), by: "app-1", fenced: fenced}
}

// open opens a shard of the ledger and checks what it says is billed.
func open(t *testing.T, l *ledger, shard int, token node.Token, want ...string) {
	t.Helper()
	got, err := l.Open(shard, token)
	if err != nil {
		t.Fatalf("open shard %d under %d: %v", shard, token, err)
	}
	wanted := map[string]bool{}
	for _, c := range want {
		wanted[c] = true
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("billed in shard %d (-want +got):\n%s", shard, diff)
	}
}

// TestLedger_Charge: from the moment a newer owner opened the shard nothing of the former one is written, and
// other shards do not matter (case 15).
func TestLedger_Charge(t *testing.T) {
	t.Run("OlderTokenIsRefused", func(t *testing.T) {
		l := newLedger(t, true)
		open(t, l, 1, 5)
		open(t, l, 2, 9)
		if err := l.Charge("customer-001", 1, 5); err != nil {
			t.Fatalf("charge under the newest token: %v", err)
		}
		open(t, l, 1, 6, "customer-001")
		if err := l.Charge("customer-002", 1, 5); !errors.Is(err, errFenced) {
			t.Errorf("charge under an older token: got %v, want %v", err, errFenced)
		}
		if _, err := l.Open(1, 5); !errors.Is(err, errFenced) {
			t.Errorf("open under an older token: got %v, want %v", err, errFenced)
		}
		open(t, l, 1, 7, "customer-001")
		open(t, l, 2, 9)
	})

	// Without the check an older token writes, which is what -unfenced shows.
	t.Run("UnfencedWrites", func(t *testing.T) {
		l := newLedger(t, false)
		open(t, l, 1, 6)
		if err := l.Charge("customer-002", 1, 5); err != nil {
			t.Errorf("charge: %v", err)
		}
		open(t, l, 1, 7, "customer-002")
	})

	// A line that a killed writer left unfinished counts for nothing and does not spoil the next one.
	t.Run("TornLineIsRemoved", func(t *testing.T) {
		l := newLedger(t, true)
		open(t, l, 1, 1)
		if err := l.Charge("customer-001", 1, 1); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(l.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.path, append(whole, `{"shard":1,"token":1,"customer":"cust`...), 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, l, 1, 2, "customer-001")
		a, err := auditFile(l.path, 1)
		if err != nil || a.err() != nil {
			t.Errorf("audit: %v, %v", err, a.err())
		}
	})
}

// TestAudit_Err: the audit finds a customer without a charge, one with two, and a line of a former owner; and nothing else.
func TestAudit_Err(t *testing.T) {
	for name, c := range map[string]struct {
		lines          string
		missing, twice []string
		stale          int
		exactlyOnce    bool
	}{
		"ExactlyOnce": {
			lines: `{"shard":1,"token":2,"by":"a"}
{"shard":1,"token":2,"by":"a","customer":"customer-001"}
{"shard":2,"token":1,"by":"b","customer":"customer-002"}
`, exactlyOnce: true,
		},
		"Missing": {
			lines:   `{"shard":1,"token":2,"by":"a","customer":"customer-001"}` + "\n",
			missing: []string{"customer-002"},
		},
		"Twice": {
			lines: `{"shard":1,"token":2,"by":"a","customer":"customer-001"}
{"shard":1,"token":3,"by":"b","customer":"customer-001"}
{"shard":1,"token":3,"by":"b","customer":"customer-002"}
`, twice: []string{"customer-001"},
		},
		"Late": {
			lines: `{"shard":1,"token":3,"by":"a","customer":"customer-001"}
{"shard":1,"token":2,"by":"b","customer":"customer-002"}
`, stale: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			if err := os.WriteFile(path, []byte(c.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			a, err := auditFile(path, 2)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{c.missing, c.twice}, [][]string{a.missing, a.twice}); diff != "" {
				t.Errorf("missing and twice (-want +got):\n%s", diff)
			}
			if len(a.late) != c.stale {
				t.Errorf("late lines: got %d, want %d", len(a.late), c.stale)
			}
			if got := a.err(); (got == nil) != c.exactlyOnce || got != nil && !errors.Is(got, errNotOnce) {
				t.Errorf("verdict: got %v, want exactly once %v", got, c.exactlyOnce)
			}
		})
	}
}
