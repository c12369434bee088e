package transport

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// packetLoop reads datagrams into one buffer and hands out copies of their own size.
func (t *TCP) packetLoop() {
	buf := make([]byte, MaxPacket)
	var rest time.Duration
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		if t.ctx.Err() != nil {
			return
		}
		if err != nil {
			if rest == 0 {
				t.log.Warn("cannot read packets, trying again", "err", err)
			}
			rest = min(max(2*rest, minBackoff), maxBackoff)
			t.rest(rest)
			continue
		}
		rest = 0
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		select {
		case t.packets <- Packet{Data: bytes.Clone(buf[:n]), From: from.String(), At: time.Now()}:
		default:
			t.stats.dropped.Add(1)
		}
	}
}

// Packets delivers the datagrams that arrive; each is the receiver's own. The channel is closed by Close. A reader that
// falls more than 1,024 packets behind loses what arrives then, and Stats counts it.
func (t *TCP) Packets() <-chan Packet { return t.packets }

// WriteTo sends b, at most MaxPacket bytes and in fact what a UDP datagram can hold, to addr, and does not keep b. It
// returns net.ErrClosed after Close, and the system's error where it tells of one; no error does not mean that the
// packet arrived. It blocks only to resolve a host name.
func (t *TCP) WriteTo(b []byte, addr string) error {
	if t.ctx.Err() != nil {
		return t.errClosed("write a packet")
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		udp, resolveErr := net.ResolveUDPAddr("udp", addr)
		if resolveErr != nil {
			return fmt.Errorf("transport: write a packet to %s: %w", addr, resolveErr)
		}
		to = udp.AddrPort()
	}
	if _, err := t.udp.WriteToUDPAddrPort(b, to); err != nil {
		return fmt.Errorf("transport: write a packet to %s: %w", addr, err)
	}
	return nil
}
