package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// KeyPrefix is the first byte of every key that this package writes. A database may be shared by all shards of a
// node and by others, as long as the others stay away from it.
const KeyPrefix = 'f'

// The second byte: pointers to generations, and the data of generations.
const (
	pointerSpace = 'g'
	dataSpace    = 'd'
)

// The kinds of records in a generation: the byte after its prefix. The order is the order in a snapshot. Those up to
// kindApplied are neither hashed nor in snapshots: the first two follow from the config records.
const (
	kindEphemeral = 'E' // session, key of a config record that goes with it → nothing
	kindTimed     = 'T' // key of a config record with a TTL → its revision, TTL and age

	kindApplied  = 'a' // index of the last applied entry
	kindClaim    = 'c' // the last claim
	kindCounters = 'n' // version, tokens, revision
	kindJob      = 'j' // name → run-once job, with its result
	kindPassed   = 'p' // time for which the shard has had owners
	kindSession  = 's' // id → session
	kindResult   = 't' // session, seq → result
	kindClaimant = 'u' // session, seq → holder of locks or waiter for them
	kindTotal    = 'v' // name → semaphore's total
	kindClosure  = 'w' // kind of lock, name, token → grace after the death of that grant
	kindRecord   = 'x' // key → config record
	kindHistory  = 'y' // revision, number within it → change of a config record
)

// spaceLen is the length of a generation's prefix: two bytes, shard, replica, generation.
const spaceLen = 2 + 3*8

// maxSuffix bounds what follows a generation's prefix: kind, kind of lock, length, name, number.
const maxSuffix = 1 + 1 + 2 + MaxName + 8

// A space is the prefix of all keys of one generation of a replica's data.
type space [spaceLen]byte

func newSpace(shard, replica, generation uint64) space {
	s := space{KeyPrefix, dataSpace}
	binary.BigEndian.PutUint64(s[2:], shard)
	binary.BigEndian.PutUint64(s[10:], replica)
	binary.BigEndian.PutUint64(s[18:], generation)
	return s
}

func (s space) generation() uint64 { return binary.BigEndian.Uint64(s[18:]) }

// next is the space of the following generation.
func (s space) next() space {
	binary.BigEndian.PutUint64(s[18:], s.generation()+1)
	return s
}

// start appends the space and a kind.
func (s space) start(b []byte, kind byte) []byte { return append(append(b, s[:]...), kind) }

// end is the first key after the space.
func (s space) end() []byte { return successor(s[:]) }

// number appends the key of a record that is found by one number.
func (s space) number(b []byte, kind byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(s.start(b, kind), n)
}

// pair appends the key of a record that is found by two numbers.
func (s space) pair(b []byte, kind byte, n, m uint64) []byte {
	return binary.BigEndian.AppendUint64(s.number(b, kind, n), m)
}

// named appends the key of a record that is found by a lock and a number. The length comes before the name, so that no
// name is a prefix of another.
func (s space) named(b []byte, kind byte, k lockKey, n uint64) []byte {
	b = binary.BigEndian.AppendUint16(append(s.start(b, kind), byte(k.kind)), uint16(len(k.name)))
	return binary.BigEndian.AppendUint64(append(b, k.name...), n)
}

// record appends the key of a config record.
func (s space) record(b, key []byte) []byte { return append(s.start(b, kindRecord), key...) }

// ephemeral appends the key of the index of records that go with a session.
func (s space) ephemeral(b []byte, session Token, key []byte) []byte {
	return append(s.number(b, kindEphemeral, uint64(session)), key...)
}

// timed appends the key of the index of records with a TTL.
func (s space) timed(b, key []byte) []byte { return append(s.start(b, kindTimed), key...) }

// change appends the key of a change of a config record.
func (s space) change(b []byte, rev Revision, n uint32) []byte {
	return binary.BigEndian.AppendUint32(s.number(b, kindHistory, uint64(rev)), n)
}

// pointerKey is the key under which a replica's current generation is stored.
func pointerKey(shard, replica uint64) []byte {
	b := []byte{KeyPrefix, pointerSpace}
	b = binary.BigEndian.AppendUint64(b, shard)
	return binary.BigEndian.AppendUint64(b, replica)
}

// successor is the first key that does not begin with prefix, nil if there is none.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			s := append([]byte(nil), prefix[:i+1]...)
			s[i]++
			return s
		}
	}
	return nil
}

// parseNumbers splits the part of a key after its kind into n numbers.
func parseNumbers(rest []byte, n int) (first, second uint64, err error) {
	if len(rest) != n*8 {
		return 0, 0, fmt.Errorf("%w: key of %d bytes", ErrCorrupt, len(rest))
	}
	first = binary.BigEndian.Uint64(rest)
	if n == 2 {
		second = binary.BigEndian.Uint64(rest[8:])
	}
	return first, second, nil
}

// parseChange splits the part of a change's key after its kind.
func parseChange(rest []byte) (Revision, uint32, error) {
	if len(rest) != 12 {
		return 0, 0, fmt.Errorf("%w: change's key of %d bytes", ErrCorrupt, len(rest))
	}
	return Revision(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint32(rest[8:]), nil
}

// parseNamed splits the part of a key after its kind into a lock's key and a number.
func parseNamed(rest []byte) (k lockKey, n uint64, err error) {
	if len(rest) < 1+2+1+8 || len(rest) != 1+2+8+int(binary.BigEndian.Uint16(rest[1:])) || len(rest) > 1+2+MaxName+8 ||
		rest[0] > byte(fsmpb.Lock_JOB) {
		return lockKey{}, 0, fmt.Errorf("%w: named key of %d bytes", ErrCorrupt, len(rest))
	}
	split := len(rest) - 8
	return lockKey{fsmpb.Lock_Kind(rest[0]), string(rest[3:split])}, binary.BigEndian.Uint64(rest[split:]), nil
}

// parseName checks the part of a key after its kind, which is all name.
func parseName(rest []byte) (string, error) {
	if len(rest) == 0 || len(rest) > MaxName {
		return "", fmt.Errorf("%w: name of %d bytes", ErrCorrupt, len(rest))
	}
	return string(rest), nil
}
