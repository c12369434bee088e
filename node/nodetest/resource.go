package nodetest

import (
	"fmt"
	"sync"

	"github.com/oarlock/oarlock/node"
)

// A Resource is something outside the cluster that is guarded by tokens, as a database row with a token column: it accepts a
// write only if no larger token was seen. It is safe for concurrent use.
type Resource struct {
	mu       sync.Mutex // guards the fields below
	high     node.Token
	value    string
	accepted int
	refused  int
}

// Resource returns a new one.
func (c *Cluster) Resource() *Resource { return &Resource{} }

// Write writes value under a token. It returns an error that wraps node.ErrFenced, and changes nothing, if a larger token wrote before.
func (r *Resource) Write(t node.Token, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t < r.high || t == 0 {
		r.refused++
		return fmt.Errorf("write with token %d after %d: %w", t, r.high, node.ErrFenced)
	}
	r.high, r.value = t, value
	r.accepted++
	return nil
}

// Value is what was written last.
func (r *Resource) Value() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// Counts are how many writes were accepted and refused.
func (r *Resource) Counts() (accepted, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted, r.refused
}
