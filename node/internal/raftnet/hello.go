package raftnet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// wireVersion is the version of everything in this package that two nodes exchange. A node of another version is refused.
const wireVersion = 1

// helloLimit bounds the frames that are exchanged before both sides know each other.
const helloLimit = 1 << 10

// ErrForeignCluster says that the peer belongs to another cluster.
var ErrForeignCluster = errors.New("raftnet: peer belongs to another cluster")

var (
	errWrongNode   = errors.New("raftnet: another node is at that address")
	errWireVersion = errors.New("raftnet: peer speaks another version of the protocol")
	errNotHello    = errors.New("raftnet: not a hello")
	errUnknownAddr = errors.New("raftnet: address of node unknown")
	errRefused     = errors.New("raftnet: peer refused the connection")
	errTwin        = errors.New("raftnet: another process of that node is known")
	errIsTwin      = errors.New("raftnet: peer knows another process of this node")
)

// A Boot is one process of a node: which of the node's starts it is, and a number that tells it from a copy at the same start.
type Boot struct{ Incarnation, Nonce uint64 }

func (b Boot) append(to []byte) []byte {
	to = binary.AppendUvarint(to, b.Incarnation)
	return binary.LittleEndian.AppendUint64(to, b.Nonce)
}

// cutBoot reads a Boot and returns what is behind it.
func cutBoot(from []byte) (b Boot, rest []byte, ok bool) {
	incarnation, n := binary.Uvarint(from)
	if n <= 0 || len(from) < n+8 {
		return Boot{}, nil, false
	}
	return Boot{incarnation, binary.LittleEndian.Uint64(from[n:])}, from[n+8:], true
}

// A hello opens a connection. On the wire: wireVersion, format as a varint, the boot, then the three strings, each after its
// length as one byte.
type hello struct {
	format        uint32
	boot          Boot
	cluster       string
	node, meantTo string
}

// The answers to a hello: one byte, behind it for foreign the receiver's cluster and for welcome its boot.
const (
	welcome byte = iota + 1
	foreign
	wrongNode
	wrongVersion
	twin // another process of the caller's node is known: the caller must stop
)

func (h hello) append(b []byte) []byte {
	b = append(b, wireVersion)
	b = binary.AppendUvarint(b, uint64(h.format))
	b = h.boot.append(b)
	for _, s := range []string{h.cluster, h.node, h.meantTo} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// decodeHello returns errNotHello for bytes that are none, and errWireVersion for another version, of which nothing else is
// known.
func decodeHello(b []byte) (h hello, err error) {
	if len(b) == 0 {
		return h, errNotHello
	}
	if b[0] != wireVersion {
		return h, fmt.Errorf("%w: %d, ours is %d", errWireVersion, b[0], wireVersion)
	}
	format, n := binary.Uvarint(b[1:])
	if n <= 0 || format > 1<<32-1 {
		return h, errNotHello
	}
	h.format = uint32(format)
	var ok bool
	if h.boot, b, ok = cutBoot(b[1+n:]); !ok {
		return h, errNotHello
	}
	for _, s := range []*string{&h.cluster, &h.node, &h.meantTo} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return h, errNotHello
		}
		*s = string(b[1 : 1+int(b[0])])
		b = b[1+int(b[0]):]
	}
	if len(b) != 0 || !isUUID(h.cluster) || !isUUID(h.node) || !isUUID(h.meantTo) {
		return h, errNotHello
	}
	return h, nil
}

// judge decides what the receiver answers, and whether the connection may go on.
func (c *Config) judge(h hello) (answer []byte, err error) {
	switch {
	case h.cluster != c.Cluster:
		return append([]byte{foreign}, c.Cluster...), fmt.Errorf("%w: theirs is %s, ours %s", ErrForeignCluster, h.cluster, c.Cluster)
	case !c.Admit(h.node, h.boot):
		return []byte{twin}, fmt.Errorf("%w: this is its start %d", errTwin, h.boot.Incarnation)
	case h.meantTo != c.Self:
		return []byte{wrongNode}, fmt.Errorf("%w: they looked for %s", errWrongNode, h.meantTo)
	}
	return c.Boot.append([]byte{welcome}), nil
}

// judged is what the answer to our hello means, which node target gave.
func (c *Config) judged(answer []byte, target string) error {
	if len(answer) == 0 {
		return errRefused
	}
	switch answer[0] {
	case welcome:
		b, rest, ok := cutBoot(answer[1:])
		if !ok || len(rest) > 0 {
			return errNotHello
		}
		if !c.Admit(target, b) { // it hears so when it calls
			return fmt.Errorf("%w: its start %d is at that address", errTwin, b.Incarnation)
		}
		return nil
	case foreign:
		return fmt.Errorf("%w: theirs is %q, ours %s", ErrForeignCluster, answer[1:], c.Cluster)
	case wrongNode:
		return errWrongNode
	case wrongVersion:
		return errWireVersion
	case twin:
		return errIsTwin
	}
	return errRefused
}
