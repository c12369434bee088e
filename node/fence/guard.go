package fence

import (
	"context"
	"fmt"
	"sync"
)

// A Guard checks tokens in memory, for any number of resources. Its zero value is ready; do not copy it once used. It is
// safe for concurrent use.
//
// It remembers one number a resource, about 200 bytes with a short name, for as long as it lives: to forget one means to
// accept an old token. So let the names come from a set that you know, not from whoever sends a request, or set Limit;
// and Forget those resources that are gone for good. It also forgets with its process: if the resource outlives that,
// keep the token with the resource, and Check it once at the start, or use SQL.
type Guard struct {
	// Limit is how many resources the Guard remembers at most; zero: no limit. What comes above it is refused with ErrFull,
	// while those known are served as before. Set it before the first use.
	Limit int

	mu    sync.RWMutex // guards known, and is never held while anything waits
	known map[string]*entry
}

// entry is what a Guard remembers of one resource.
type entry struct {
	turn chan struct{} // holds an element while somebody is let in

	mu   sync.Mutex // guards high
	high uint64     // the largest token shown; it only rises
}

// Check refuses a token smaller than the largest one shown, with a *StaleError, and remembers it otherwise. It waits while
// a Do on the resource runs, so that no write of an older holder ends after a newer one's check. Between Check and a write
// of yours another may come; Do closes that window. ErrInvalid and ErrFull remember nothing.
func (g *Guard) Check(resource string, token uint64) error {
	e, err := g.show(resource, token)
	if err != nil {
		return err
	}
	e.turn <- struct{}{}
	err = e.show(resource, token) // a larger one may have been shown meanwhile
	<-e.turn
	return err
}

// Do runs fn, which does the write, if token is current. Nobody else is let in to the resource until fn returns, and from
// the moment a larger token is shown, smaller ones that wait are refused. It waits for its turn until ctx ends, and then
// returns its cause; *StaleError, ErrInvalid and ErrFull also mean that fn was not run. Else it returns fn's error. fn gets
// ctx as it is, and must not use the Guard for the same resource.
func (g *Guard) Do(ctx context.Context, resource string, token uint64, fn func(ctx context.Context) error) error {
	e, err := g.show(resource, token)
	if err != nil {
		return err
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait for %q with token %d: %w", resource, token, context.Cause(ctx))
	}
	if ctx.Err() != nil { // select picks at random
		return fmt.Errorf("wait for %q with token %d: %w", resource, token, context.Cause(ctx))
	}
	if err := e.show(resource, token); err != nil {
		return err
	}
	return fn(ctx)
}

// Seen returns the largest token that was shown for the resource, 0 if none was or it was forgotten. It never waits for
// a Do. What it returns may be outdated at once; it is for status pages and logs, not for decisions.
func (g *Guard) Seen(resource string) uint64 {
	g.mu.RLock()
	e := g.known[resource]
	g.mu.RUnlock()
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.high
}

// Forget drops what is known of a resource, and so makes room under Limit. Afterwards any token is accepted for it, also
// an old one: call it only when the resource is gone for good and its name is not used again. A Do that runs or waits goes on.
func (g *Guard) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, resource)
}

// show is entry.show for a resource that may be new.
func (g *Guard) show(resource string, token uint64) (*entry, error) {
	if err := validate(resource, token); err != nil {
		return nil, err
	}
	g.mu.RLock()
	e := g.known[resource]
	g.mu.RUnlock()
	if e == nil {
		var err error
		if e, err = g.add(resource); err != nil {
			return nil, err
		}
	}
	return e, e.show(resource, token)
}

func (g *Guard) add(resource string) (*entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.known[resource]; e != nil {
		return e, nil
	}
	if g.Limit > 0 && len(g.known) >= g.Limit {
		return nil, fmt.Errorf("check token of %q: %w: it knows %d resources", resource, ErrFull, len(g.known))
	}
	if g.known == nil {
		g.known = map[string]*entry{}
	}
	e := &entry{turn: make(chan struct{}, 1)}
	g.known[resource] = e
	return e, nil
}

// show remembers a token that is current and refuses one that is not. It counts from here on, also if its bearer never
// gets its turn: a larger token that exists proves that the grants of all smaller ones have ended.
func (e *entry) show(resource string, token uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if token < e.high {
		return &StaleError{Resource: resource, Token: token, Seen: e.high}
	}
	e.high = token
	return nil
}
