package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// FrameHeader is the size in bytes of what stands before a frame's payload: its length and its checksum, each four
// bytes, little endian. The checksum is CRC-32C over the length and the payload, so that a torn or shifted stream of
// zeros is not a run of valid empty frames.
const FrameHeader = 8

// frameStep is how much is allocated at a time for a payload that has been announced but has not arrived.
const frameStep = 1 << 20

// Errors of the frame helpers. A stream that gave one of them is out of step and must be closed.
var (
	// ErrFrameTooLarge says that a frame's announced or given length is above the caller's bound.
	ErrFrameTooLarge = errors.New("transport: frame too large")
	// ErrFrameCorrupt says that a frame's checksum does not fit its content.
	ErrFrameCorrupt = errors.New("transport: frame corrupt")
)

// BeginFrame appends room for a frame's header to dst. The caller remembers len(dst) from before the call, appends the
// payload to what it got, and calls EndFrame with both. Many frames gathered so in one buffer go out in one write,
// without a copy of any payload.
func BeginFrame(dst []byte) []byte {
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// EndFrame fills in the header of the frame that BeginFrame began at offset start of b, whose payload is everything
// behind that header. It returns ErrFrameTooLarge, and leaves b as it is, when the payload is longer than limit; the
// caller then cuts b back to start.
func EndFrame(b []byte, start, limit int) error {
	payload := b[start+FrameHeader:]
	if len(payload) > limit || len(payload) > maxFrame {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrFrameTooLarge, len(payload), min(limit, maxFrame))
	}
	putFrameHeader(b[start:start+FrameHeader], payload)
	return nil
}

// AppendFrame appends payload as one frame to dst and returns the result. It returns dst as it was, and
// ErrFrameTooLarge, when payload is longer than limit. It keeps neither dst nor payload.
func AppendFrame(dst, payload []byte, limit int) ([]byte, error) {
	start := len(dst)
	out := append(BeginFrame(dst), payload...)
	if err := EndFrame(out, start, limit); err != nil {
		return dst, err
	}
	return out, nil
}

// WriteFrame writes payload as one frame to w, in a single Write. It returns ErrFrameTooLarge before anything is
// written when payload is longer than limit. After any other error the peer may hold half a frame, so the stream must
// be closed. It blocks as w does; it is not safe for concurrent use of one w.
func WriteFrame(w io.Writer, payload []byte, limit int) error {
	b, err := AppendFrame(make([]byte, 0, FrameHeader+len(payload)), payload, limit)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// ReadFrame reads one frame from r and returns its payload, which lies in buf when it fits there and in a new buffer
// otherwise; pass the result, cut to any length, as buf of the next call. The announced length is checked against
// limit before anything is allocated, and memory grows only as bytes arrive, 1 MiB at a time. It returns io.EOF only
// between frames, io.ErrUnexpectedEOF inside one, ErrFrameTooLarge and ErrFrameCorrupt; after any error the stream
// must be closed.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	buf = slices.Grow(buf[:0], FrameHeader)[:FrameHeader]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, err
	}
	size := binary.LittleEndian.Uint32(buf)
	sum := binary.LittleEndian.Uint32(buf[4:])
	if uint64(size) > uint64(max(limit, 0)) {
		return buf, fmt.Errorf("%w: %d bytes announced, at most %d", ErrFrameTooLarge, size, limit)
	}
	buf, err := readSteps(r, buf[:0], int(size))
	if err != nil {
		return buf, err
	}
	if frameSum(buf) != sum {
		return buf, ErrFrameCorrupt
	}
	return buf, nil
}

// maxFrame is the longest payload that the length field can announce.
const maxFrame = 1<<32 - 1

// readSteps reads n bytes from r into buf[:0] and grows it only as they arrive.
func readSteps(r io.Reader, buf []byte, n int) ([]byte, error) {
	for len(buf) < n {
		have := len(buf)
		step := min(n-have, max(frameStep, cap(buf)-have))
		buf = slices.Grow(buf, step)[:have+step]
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return buf[:have], err
		}
	}
	return buf, nil
}

func putFrameHeader(h, payload []byte) {
	binary.LittleEndian.PutUint32(h, uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[4:], frameSum(payload))
}

// frameSum is the checksum of a frame: over its length as on the wire, then its payload.
func frameSum(payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // the package's own shared table: no work after the first call
	var size [4]byte
	binary.LittleEndian.PutUint32(size[:], uint32(len(payload)))
	return crc32.Update(crc32.Update(0, table, size[:]), table, payload)
}
