package transport

import (
	"context"
	"net"
	"strconv"
	"time"
)

// bindTries is how often port 0 is tried again when the port that TCP got is taken for UDP.
const bindTries = 32

// keepAlive finds a dead peer of an idle connection within half a minute. It is the last resort: the protocols above
// have heartbeats of their own.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// bind opens TCP and UDP at one address and, for port 0, at one port that is free for both.
func bind(addr string) (net.Listener, *net.UDPConn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	num, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		l, u, err := bindBoth(host, addr)
		if err == nil || num != 0 || try == bindTries {
			return l, u, err
		}
	}
}

func bindBoth(host, addr string) (net.Listener, *net.UDPConn, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	p, err := lc.ListenPacket(context.Background(), "udp", net.JoinHostPort(host, port))
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	u := p.(*net.UDPConn) // what ListenPacket returns for "udp"
	// The system may grant less; a burst then loses packets earlier.
	_ = u.SetReadBuffer(udpBuffer)
	return l, u, nil
}
