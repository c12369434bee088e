package env

import (
	"net"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/transport"
)

// System is the real machine: CLOCK_BOOTTIME, sockets and disks.
func System() (*Env, error) {
	clock, err := newSystemClock()
	if err != nil {
		return nil, err
	}
	return &Env{
		Clock:  clock,
		FS:     vfs.Default,
		BootID: bootID(),
		Listen: func(bind, advertise string, log hclog.Logger) (transport.Transport, error) {
			return transport.Listen(transport.Config{Bind: bind, Advertise: advertise, Logger: log})
		},
		Lookup: net.DefaultResolver.LookupHost,
	}, nil
}

// bootID names the machine's boot. It is empty where the system has no such name: then no two boots count as the same.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
