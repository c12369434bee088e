package rpc

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// A kind is what a message is. The numbers from 16 on are left for streams.
type kind byte

const (
	kindPing     kind = 1 // nothing but a sign of life, or a request that was taken back before it left
	kindRequest  kind = 2
	kindResponse kind = 3
	kindError    kind = 4
	kindCancel   kind = 5
)

// A message is the content of one frame.
type message struct {
	kind    kind
	id      uint64        // of the call; the client counts
	code    uint16        // the request's method, or the error's code
	timeout time.Duration // the request's remaining time, 0 for none
	body    []byte        // the request's, the answer's, or the error's text
}

const (
	baseSize    = 1 + 8
	requestSize = baseSize + 2 + 8
	errorSize   = baseSize + 2
	maxText     = 4 << 10 // an error's text is cut to this
)

// maxPayload is the bound of a frame whose body has at most maxBody bytes.
func maxPayload(maxBody int) int { return requestSize + max(maxBody, maxText) }

// appendMessage appends m as one frame to dst. If m is too long it returns dst as it was and transport.ErrFrameTooLarge.
func appendMessage(dst []byte, m *message, maxBody int) ([]byte, error) {
	start := len(dst)
	b := transport.BeginFrame(dst)
	b = append(b, byte(m.kind))
	b = binary.LittleEndian.AppendUint64(b, m.id)
	limit := baseSize + maxBody
	switch m.kind {
	case kindRequest:
		b = binary.LittleEndian.AppendUint16(b, m.code)
		b = binary.LittleEndian.AppendUint64(b, uint64(m.timeout))
		limit = requestSize + maxBody
	case kindError:
		b = binary.LittleEndian.AppendUint16(b, m.code)
		limit = errorSize + maxText
	}
	if len(m.body) > maxBody && len(m.body) > maxText { // before it is copied
		return dst, fmt.Errorf("%w: a body of %d bytes, at most %d", transport.ErrFrameTooLarge, len(m.body), maxBody)
	}
	b = append(b, m.body...)
	if err := transport.EndFrame(b, start, limit); err != nil {
		return dst, err
	}
	return b, nil
}

// parseMessage reads one frame's payload. The body lies in b.
func parseMessage(b []byte) (message, error) {
	if len(b) < baseSize {
		return message{}, fmt.Errorf("%w: a message of %d bytes", errProtocol, len(b))
	}
	m := message{kind: kind(b[0]), id: binary.LittleEndian.Uint64(b[1:])}
	switch m.kind {
	case kindRequest:
		if len(b) < requestSize {
			return m, fmt.Errorf("%w: a request of %d bytes", errProtocol, len(b))
		}
		m.code = binary.LittleEndian.Uint16(b[baseSize:])
		m.timeout = time.Duration(binary.LittleEndian.Uint64(b[baseSize+2:]))
		m.body = b[requestSize:]
		if m.timeout < 0 {
			return m, fmt.Errorf("%w: a request with a timeout of %v", errProtocol, m.timeout)
		}
	case kindError:
		if len(b) < errorSize {
			return m, fmt.Errorf("%w: an error of %d bytes", errProtocol, len(b))
		}
		m.code = binary.LittleEndian.Uint16(b[baseSize:])
		m.body = b[errorSize:]
	case kindPing, kindResponse, kindCancel:
		m.body = b[baseSize:]
	default:
		return m, fmt.Errorf("%w: a message of kind %d", errProtocol, m.kind)
	}
	return m, nil
}
