//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oarlock/oarlock/node"
)

// obey does what an operator would do with the flags.
func obey(ctx context.Context, n *node.Node, flags node.Typed[Flags], o order) (r report, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r.Kind = answered
	switch o.Do {
	case doSet:
		r.Revision, err = flags.Put(ctx, key, o.Flags, nil)
	case doSwap:
		r.Revision, err = flags.CompareAndSwap(ctx, key, o.Old, o.Flags, nil)
	case doUpdate:
		r.Revision, err = flags.Update(ctx, key, func(f Flags, _ bool) (Flags, error) {
			f.NewCheckout += o.Flags.NewCheckout
			if o.Flags.Banner != "" {
				f.Banner = o.Flags.Banner
			}
			return f, nil
		})
	case doSetRaw:
		r.Revision, err = flags.Shard.Put(ctx, key, []byte(o.Raw), nil)
	case doAsk:
		return ask(ctx, n, flags.Shard)
	default:
		err = fmt.Errorf("order %q: %w", o.Do, errors.ErrUnsupported)
	}
	return r, err
}

func ask(ctx context.Context, n *node.Node, s *node.Shard) (report, error) {
	r := report{Kind: answered}
	owner, _, err := n.Owner(ctx, s.ID())
	if err != nil {
		return r, err
	}
	r.Owner = owner.Name
	for e, err := range s.History(ctx, key) {
		if err != nil {
			return r, err
		}
		r.History = append(r.History, change{Revision: e.Revision, At: e.At, Value: string(e.Record.Value)})
	}
	slices.Reverse(r.History)
	return r, nil
}
