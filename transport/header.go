package transport

import (
	"fmt"
	"io"
	"slices"
)

// headerSize is the length of what each connection begins with: magic, version, protocol.
const headerSize = 6

// headerVersion is the one version of the header so far. A peer of another one is refused, so a new version needs a
// listener that knows both.
const headerVersion = 1

const headerMagic = "oarL"

// appendHeader appends the header of a connection of protocol p.
func appendHeader(dst []byte, p Proto) []byte {
	return append(append(dst, headerMagic...), headerVersion, byte(p))
}

// readHeader reads a connection's header, and not a byte more.
func readHeader(r io.Reader) (Proto, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, fmt.Errorf("transport: read the connection header: %w", err)
	}
	if got := string(h[:len(headerMagic)]); got != headerMagic {
		return 0, fmt.Errorf("%w: it begins with %q", errMagic, got)
	}
	if v := h[4]; v != headerVersion {
		return 0, fmt.Errorf("%w: %d, want %d", errVersion, v, headerVersion)
	}
	p := Proto(h[5])
	if !slices.Contains(Protos(), p) {
		return 0, fmt.Errorf("%w: %d", errProto, h[5])
	}
	return p, nil
}
