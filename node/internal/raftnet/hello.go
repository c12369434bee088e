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
)

// A hello opens a connection. On the wire: wireVersion, format as a varint, then the three strings, each after its length as
// one byte.
type hello struct {
	format        uint32
	cluster       string
	node, meantTo string
}

// The answers to a hello: one byte, and for foreign the receiver's cluster behind it.
const (
	welcome byte = iota + 1
	foreign
	wrongNode
	wrongVersion
)

func (h hello) append(b []byte) []byte {
	b = append(b, wireVersion)
	b = binary.AppendUvarint(b, uint64(h.format))
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
	b = b[1+n:]
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

// judge decides what the node self of cluster answers, and whether the connection may go on.
func (h hello) judge(cluster, self string) (answer []byte, err error) {
	switch {
	case h.cluster != cluster:
		return append([]byte{foreign}, cluster...), fmt.Errorf("%w: theirs is %s, ours %s", ErrForeignCluster, h.cluster, cluster)
	case h.meantTo != self:
		return []byte{wrongNode}, fmt.Errorf("%w: they looked for %s", errWrongNode, h.meantTo)
	}
	return []byte{welcome}, nil
}

// judged is what the answer to our hello means.
func judged(answer []byte, cluster string) error {
	if len(answer) == 0 {
		return errRefused
	}
	switch answer[0] {
	case welcome:
		return nil
	case foreign:
		return fmt.Errorf("%w: theirs is %q, ours %s", ErrForeignCluster, answer[1:], cluster)
	case wrongNode:
		return errWrongNode
	case wrongVersion:
		return errWireVersion
	}
	return errRefused
}
