//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/oarlock/oarlock/examples/internal/procs"
)

// A stage is where the processes of the story run: a cluster of one node, and the two that take the lock.
type stage struct {
	cast          *procs.Cast[report]
	cluster, a, b *procs.Member
}

func newStage(binary, dir string) *stage {
	s := &stage{cast: procs.NewCast[report](binary, dir, "cluster", "A", "B")}
	s.cluster, s.a, s.b = s.cast.Members[0], s.cast.Members[1], s.cast.Members[2]
	return s
}

// start starts a process, which joins those that were started before it, and waits until it is ready.
func (s *stage) start(ctx context.Context, p *procs.Member) error {
	if err := s.cast.Start(p); err != nil {
		return err
	}
	r, err := s.hear(ctx, p)
	p.Addr = r.Addr
	return err
}

// hear waits for the report of p on the only order that is under way.
func (s *stage) hear(ctx context.Context, p *procs.Member) (report, error) {
	h, err := s.cast.Next(ctx)
	switch {
	case err != nil:
		return report{}, fmt.Errorf("wait for %s: %w", p.Name, err)
	case h.Report.Err != "":
		return report{}, fmt.Errorf("%s: %w", h.From.Name, errors.New(h.Report.Err))
	case h.From != p:
		return report{}, fmt.Errorf("wait for %s: %s spoke unasked", p.Name, h.From.Name)
	}
	return h.Report, nil
}

func (s *stage) ask(ctx context.Context, p *procs.Member, o order) (report, error) {
	if err := p.Tell(o); err != nil {
		return report{}, err
	}
	return s.hear(ctx, p)
}
