package fsm

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// load reads a space into memory, but the config records and their history, and its applied index. It checks everything it reads:
// state that this package cannot have written is ErrCorrupt, never half a state.
func load(r pebble.Reader, sp space, maxVersion uint32) (*state, uint64, error) {
	c, err := readCounters(r, sp)
	if err != nil {
		return nil, 0, err
	}
	if c.version > maxVersion {
		return nil, 0, fmt.Errorf("%w: state has version %d, this machine knows up to %d", ErrVersion, c.version, maxVersion)
	}
	applied, err := readApplied(r, sp)
	if err != nil {
		return nil, 0, err
	}
	l := loader{newState(c.version, c.tokens)}
	l.st.counters = c
	if err := eachBetween(r, sp.start(nil, kindApplied+1), sp.start(nil, kindRecord), l.record); err != nil {
		return nil, 0, err
	}
	if err := eachBetween(r, sp.start(nil, kindEphemeral), sp.start(nil, kindEphemeral+1), l.ephemeral); err != nil {
		return nil, 0, err
	}
	if err := l.finish(); err != nil {
		return nil, 0, err
	}
	return l.st, applied, nil
}

// loader builds a state from stored records, in the order of their keys: sessions come before what hangs on them.
type loader struct{ st *state }

func (l loader) record(suffix, value []byte) error {
	rest := suffix[1:]
	switch suffix[0] {
	case kindClaim:
		c, err := decodeClaim(value)
		l.st.claim = c
		return errors.Join(err, l.minted(c.Token))
	case kindCounters:
		return nil // load has read them
	case kindPassed:
		var err error
		l.st.passed, err = decodePassed(value)
		return err
	case kindSession:
		return l.session(rest, value)
	case kindResult:
		return l.result(rest, value)
	case kindClaimant:
		return l.claimant(rest, value)
	case kindTotal:
		return l.total(rest, value)
	case kindClosure:
		return l.closure(rest, value)
	case kindJob:
		return l.job(rest, value)
	}
	return fmt.Errorf("%w: unknown kind %q", ErrCorrupt, suffix[0])
}

// minted refuses a token above the counter: it would be minted once more.
func (l loader) minted(t Token) error {
	if t > l.st.counters.tokens {
		return fmt.Errorf("%w: token %d is above the counter's %d", ErrCorrupt, t, l.st.counters.tokens)
	}
	return nil
}

func (l loader) session(rest, value []byte) error {
	id, _, err := parseNumbers(rest, 1)
	if err != nil {
		return err
	}
	s, err := decodeSession(Token(id), value)
	if err != nil {
		return err
	}
	if err := errors.Join(l.minted(s.id), l.minted(s.life.Heard)); err != nil {
		return err
	}
	if l.st.nonces[s.nonce] != nil {
		return fmt.Errorf("%w: session %d has another's nonce", ErrCorrupt, id)
	}
	l.st.add(s)
	return nil
}

func (l loader) result(rest, value []byte) error {
	id, seq, err := parseNumbers(rest, 2)
	if err != nil {
		return err
	}
	res, err := decodeResult(value)
	if err != nil {
		return err
	}
	s := l.st.sessions[Token(id)]
	if s == nil || seq <= s.low {
		return fmt.Errorf("%w: result %d of session %d hangs on nothing", ErrCorrupt, seq, id)
	}
	s.results = append(s.results, remembered{seq, res})
	return nil
}

// ephemeral counts a record that goes with a session.
func (l loader) ephemeral(suffix, _ []byte) error {
	if len(suffix) <= 1+8 {
		return fmt.Errorf("%w: index key of %d bytes", ErrCorrupt, len(suffix))
	}
	id, _, err := parseNumbers(suffix[1:1+8], 1)
	s := l.st.sessions[Token(id)]
	if s == nil {
		return errors.Join(err, fmt.Errorf("%w: record %q goes with session %d, which is not there", ErrCorrupt, suffix[1+8:], id))
	}
	s.ephemeral++
	return err
}
