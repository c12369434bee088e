//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// heard is what an app, one of the three processes, said.
type heard struct {
	report
	from *procs.Member
}

// start starts an app, tells it where the others are, and waits until it listens.
func (s *story) start(ctx context.Context, a *procs.Member) error {
	err := s.cast.Start(a, "-bills", filepath.Join(s.dir, "bills"), "-first", fmt.Sprint(s.first.Unix()), "-dates", fmt.Sprint(s.audit.dates))
	if err != nil {
		return err
	}
	if err := s.until(ctx, a.Name+" to listen", func(heard) bool { return a.Addr != "" }); err != nil {
		return err
	}
	s.print("%s runs as process %d and listens on %s", a.Name, a.Pid(), a.Addr)
	return nil
}

// until listens until one of the things heard makes cond true.
func (s *story) until(ctx context.Context, what string, cond func(heard) bool) error {
	for {
		said, err := s.cast.Next(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		h := heard{report: said.Report, from: said.From}
		if h.Kind == isOpen {
			h.from.Addr = h.Addr
		}
		s.audit.hear(s.out, h)
		if cond(h) {
			return nil
		}
	}
}
