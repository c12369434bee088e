package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cespare/xxhash/v2"
)

// A snapshot stream is a header, frames of records, and a trailer. All numbers are big-endian.
//
//	header:  magic (8), format version (4), applied index (8), CRC-32C of these (4)
//	frame:   length (4), CRC-32C of the payload (4), payload
//	trailer: zero (4), number of records (8), xxhash of header and payloads (8), CRC-32C of these (4)
//
// A payload is whole records: length of the key, key, length of the value, value; lengths are uvarints. Keys are
// without their space's prefix, and rise strictly. The applied index stands in the header and nowhere else.
const (
	streamMagic = "oarlkfsm"
	headerLen   = 8 + 4 + 8 + 4
	trailerLen  = 8 + 8 + 4     // after its zero
	frameGoal   = 64 << 10      // a frame is ended once it is longer
	maxStored   = 1<<20 + 4<<10 // longest value that is ever stored: a change of one long value into another
	maxFrame    = frameGoal + maxStored + maxSuffix + 2*binary.MaxVarintLen64
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// encoder writes a snapshot stream.
type encoder struct {
	w       io.Writer
	payload []byte
	count   uint64
	hash    *xxhash.Digest
}

func newEncoder(w io.Writer, version uint32, applied uint64) (*encoder, error) {
	h := append(make([]byte, 0, headerLen), streamMagic...)
	h = binary.BigEndian.AppendUint32(h, version)
	h = binary.BigEndian.AppendUint64(h, applied)
	h = binary.BigEndian.AppendUint32(h, checksum(h))
	e := &encoder{w: w, hash: xxhash.New()}
	_, _ = e.hash.Write(h)
	_, err := w.Write(h)
	return e, err
}

func (e *encoder) record(suffix, value []byte) error {
	if len(suffix) > maxSuffix || len(value) > maxStored {
		return fmt.Errorf("%w: record of %d and %d bytes", ErrCorrupt, len(suffix), len(value))
	}
	e.payload = appendBytes(appendBytes(e.payload, suffix), value)
	e.count++
	if len(e.payload) < frameGoal {
		return nil
	}
	return e.flush()
}

func (e *encoder) flush() error {
	if len(e.payload) == 0 {
		return nil
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(e.payload)))
	head = binary.BigEndian.AppendUint32(head, checksum(e.payload))
	_, _ = e.hash.Write(e.payload)
	if _, err := e.w.Write(head); err != nil {
		return err
	}
	_, err := e.w.Write(e.payload)
	e.payload = e.payload[:0]
	return err
}

func (e *encoder) finish() error {
	if err := e.flush(); err != nil {
		return err
	}
	t := binary.BigEndian.AppendUint64(make([]byte, 4, 4+trailerLen), e.count)
	t = binary.BigEndian.AppendUint64(t, e.hash.Sum64())
	t = binary.BigEndian.AppendUint32(t, checksum(t[4:]))
	_, err := e.w.Write(t)
	return err
}

// decoder reads a snapshot stream. It allocates no more than one frame, whatever the stream says.
type decoder struct {
	r       io.Reader
	version uint32
	applied uint64
	buf     []byte // the frame
	rest    []byte // what is left of it
	last    []byte // key of the last record
	count   uint64
	hash    *xxhash.Digest
}

// newDecoder reads the header. A format version above max is ErrVersion.
func newDecoder(r io.Reader, max uint32) (*decoder, error) {
	h := make([]byte, headerLen)
	if err := readFull(r, h); err != nil {
		return nil, err
	}
	if string(h[:8]) != streamMagic || binary.BigEndian.Uint32(h[20:]) != checksum(h[:20]) {
		return nil, fmt.Errorf("%w: not a snapshot's header", ErrCorrupt)
	}
	d := &decoder{r: r, version: binary.BigEndian.Uint32(h[8:]), applied: binary.BigEndian.Uint64(h[12:]), hash: xxhash.New()}
	_, _ = d.hash.Write(h)
	switch {
	case d.version == 0:
		return nil, fmt.Errorf("%w: snapshot without a version", ErrCorrupt)
	case d.version > max:
		return nil, fmt.Errorf("%w: snapshot has version %d, this machine knows up to %d", ErrVersion, d.version, max)
	}
	return d, nil
}

// record returns the next record, valid until the next call. It returns io.EOF after the last one, once the trailer
// has confirmed all of them.
func (d *decoder) record() (suffix, value []byte, err error) {
	if len(d.rest) == 0 {
		if err := d.frame(); err != nil {
			return nil, nil, err
		}
	}
	suffix, ok := d.take(maxSuffix)
	if !ok || len(suffix) == 0 || bytes.Compare(suffix, d.last) <= 0 || suffix[0] <= kindApplied {
		return nil, nil, fmt.Errorf("%w: key of record %d", ErrCorrupt, d.count)
	}
	value, ok = d.take(maxStored)
	if !ok {
		return nil, nil, fmt.Errorf("%w: value of record %d", ErrCorrupt, d.count)
	}
	d.last = append(d.last[:0], suffix...)
	d.count++
	return suffix, value, nil
}

// take returns the next bytes with a length before them.
func (d *decoder) take(limit uint64) ([]byte, bool) {
	n, k := binary.Uvarint(d.rest)
	if k <= 0 || n > limit || n > uint64(len(d.rest)-k) {
		return nil, false
	}
	b := d.rest[k : k+int(n)]
	d.rest = d.rest[k+int(n):]
	return b, true
}

func (d *decoder) frame() error {
	var head [8]byte
	if err := readFull(d.r, head[:4]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n == 0 {
		return d.trailer()
	}
	if n > maxFrame {
		return fmt.Errorf("%w: frame of %d bytes", ErrCorrupt, n)
	}
	if err := readFull(d.r, head[4:]); err != nil {
		return err
	}
	if cap(d.buf) < int(n) {
		d.buf = make([]byte, n)
	}
	d.rest = d.buf[:n]
	if err := readFull(d.r, d.rest); err != nil {
		return err
	}
	if checksum(d.rest) != binary.BigEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w: frame after record %d", ErrCorrupt, d.count)
	}
	_, _ = d.hash.Write(d.rest)
	return nil
}

func (d *decoder) trailer() error {
	t := make([]byte, trailerLen)
	if err := readFull(d.r, t); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(t[16:]) != checksum(t[:16]) || binary.BigEndian.Uint64(t) != d.count ||
		binary.BigEndian.Uint64(t[8:]) != d.hash.Sum64() {
		return fmt.Errorf("%w: trailer after %d records", ErrCorrupt, d.count)
	}
	return io.EOF
}

// readFull fills b. A stream that ends early is corrupt; any other error is the reader's.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: snapshot ends early", ErrCorrupt)
	}
	return err
}
