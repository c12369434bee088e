package nodetest

import (
	"context"
	"time"
)

// What a cluster's own calls may take, in virtual time, on a disk that does not hang.
const (
	openLimit  = 10 * time.Second // Open, which waits for no peer
	closeLimit = 20 * time.Second // Close, and what Shutdown takes beyond its ctx
	late       = 50 * time.Millisecond
)

// within says, if it is not called off before, that what did not end within limit: at that time, so that a test that hangs says where.
// unless, if not nil, is asked then and excuses it.
func (k *checker) within(limit time.Duration, unless func() bool, format string, args ...any) (stop func()) {
	t := time.AfterFunc(limit, func() {
		if unless == nil || !unless() {
			k.failf(format+": did not return within %v", append(args, limit)...)
		}
	})
	return func() { t.Stop() }
}

// byDeadline says, if it is not called off before, that a call did not return by the deadline of its ctx, which may outlast it by a little.
func (k *checker) byDeadline(ctx context.Context, what string) (stop func()) {
	d, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := max(time.Until(d), 0) + late
	t := time.AfterFunc(left, func() { k.failf("%s did not return by %v after its deadline", what, late) })
	return func() { t.Stop() }
}
