package transport

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
)

// DefaultHeaderTimeout is how long an accepted connection may take to say its protocol, a TLS handshake included.
const DefaultHeaderTimeout = 5 * time.Second

// Config sets up the transport on sockets.
type Config struct {
	// Bind is the host:port to listen at, for TCP and UDP. An empty or unspecified host means all addresses; port 0
	// means any that is free for both. Required.
	Bind string
	// Advertise is the host:port that peers reach this transport at. Port 0 stands for the real port. Empty means the
	// address that Bind became, which is of no use to peers if that is all addresses.
	Advertise string
	// Wrap secures a connection, dialled (server false) or accepted (server true), before any byte of ours; it may
	// handshake, under a deadline that is already set. What it returns must close c when it is closed. Nil: plain.
	Wrap func(c net.Conn, server bool) (net.Conn, error)
	// Logger gets refused connections and failures of the listener. Nil: nothing is logged.
	Logger hclog.Logger
	// HeaderTimeout is how long an accepted connection may take until its protocol is known. Zero means
	// DefaultHeaderTimeout; negative is refused.
	HeaderTimeout time.Duration
}

// withDefaults returns c with its zero values filled in, or every fault in it.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	check := func(field, addr string) {
		_, port, err := net.SplitHostPort(addr)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: %s %q: give host:port with a numeric port: %w", ErrInvalid, field, addr, err))
		}
	}
	check("Bind", c.Bind)
	if c.Advertise != "" {
		check("Advertise", c.Advertise)
	}
	if c.HeaderTimeout < 0 {
		faults = append(faults, fmt.Errorf("%w: HeaderTimeout %v: give 0 or more", ErrInvalid, c.HeaderTimeout))
	}
	if c.HeaderTimeout == 0 {
		c.HeaderTimeout = DefaultHeaderTimeout
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c, errors.Join(faults...)
}

// address is what peers are told, given the address the listener really has.
func (c Config) address(real net.Addr) string {
	if c.Advertise == "" {
		return real.String()
	}
	host, port, _ := net.SplitHostPort(c.Advertise) // withDefaults has checked it
	if num, _ := strconv.ParseUint(port, 10, 16); num != 0 {
		return net.JoinHostPort(host, strconv.FormatUint(num, 10))
	}
	_, port, _ = net.SplitHostPort(real.String())
	return net.JoinHostPort(host, port)
}
