//go:build unix && !linux

package procs

import "syscall"

// attr gives a process a group of its own, so that an interrupt on the terminal reaches the parent alone, which ends all. And
// should the parent be killed, the kernel ends a process of such a group that is stopped and could not see its stdin end.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
