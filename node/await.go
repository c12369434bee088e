package node

import (
	"context"
	"time"

	"github.com/oarlock/oarlock/fsm"
	"github.com/oarlock/oarlock/fsm/fsmpb"
	"github.com/oarlock/oarlock/node/internal/wire"
)

// await waits a while until the result of a queued operation is final, and returns it as it then is; nil: the ownership or ctx ended.
func (o *ownership) await(ctx context.Context, q *wire.Await) *fsmpb.Result {
	session, seq := fsm.Token(q.GetSession()), q.GetSeq()
	woken, leave := o.waits.join(waitKey{session, seq})
	defer leave()
	res, ok := o.l.machine.Load().Result(session, seq)
	if ok && res.GetStatus() == fsmpb.Result_QUEUED {
		t := time.NewTimer(awaitTime)
		defer t.Stop()
		select {
		case <-woken:
		case <-t.C:
		case <-o.hold.channel():
			return nil
		case <-ctx.Done():
			return nil
		}
		res, ok = o.l.machine.Load().Result(session, seq)
	}
	if !ok {
		res = &fsmpb.Result{Status: fsmpb.Result_CANCELLED}
		if _, lives := o.l.machine.Load().Session(session); !lives {
			res.Status = fsmpb.Result_NO_SESSION
		}
	}
	return res
}
