//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/oarlock/oarlock/node"
)

// schedule says when a night is: here every second, in real life "0 0 2 * * *", at two in the morning.
const schedule = "* * * * * *"

// A service is the part to copy: a node, a schedule, and one RunOnce for each date. Every process of the service runs the same.
type service struct {
	node  *node.Node
	first time.Time // the night of the first date
	dates int       // how many there are in all
	bills string    // the directory that bills are written to
	say   func(report)

	done map[string]bool // what this process knows to be completed; used by the schedule's job alone
}

// run has the schedule run until ctx ends.
func (s *service) run(ctx context.Context) error {
	// A night that is still being billed when the next one comes holds that up, and only that: it is caught up with afterwards.
	c := cron.New(cron.WithSeconds(), cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
	if _, err := c.AddFunc(schedule, func() { s.catchUp(ctx, time.Now()) }); err != nil {
		return fmt.Errorf("schedule %q: %w", schedule, err)
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done() // the job that runs has returned
	return nil
}

// catchUp bills all dates up to now that are not known to be completed: also those of nights on which no process lived to the end.
// A schedule alone would leave them out.
func (s *service) catchUp(ctx context.Context, now time.Time) {
	for i := 0; i < s.dates && !s.first.Add(time.Duration(i)*time.Second).After(now); i++ {
		if date := dateOf(i); !s.done[date] && ctx.Err() == nil {
			s.billOnce(ctx, date)
		}
	}
}

// billOnce makes one process bill the date: whichever asks first. The others wait, and get its result.
func (s *service) billOnce(ctx context.Context, date string) {
	keep := &node.JobOptions{Keep: 90 * 24 * time.Hour} // nobody asks for a date that is older
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var token node.Token
	result, err := s.node.Shard("billing").RunOnce(ctx, "billing/"+date, keep, func(ctx context.Context, r *node.Run) ([]byte, error) {
		token = r.Token()
		return s.bill(ctx, r, date)
	})
	switch {
	case err == nil:
		s.done[date] = true
		s.say(report{Kind: completed, Date: date, Token: token, File: string(result)})
	case errors.Is(err, node.ErrAlreadyDone):
		s.done[date] = true
	default: // not done, lost, or unknown: the next night asks again
		s.say(report{Kind: failed, Date: date, Token: token, Err: err.Error()})
	}
}

// bill is the work. It may be stopped at any point and be done again by another process, so what it writes is of this run alone: the
// token is in the name. Which file counts is what the completed run has on record.
func (s *service) bill(ctx context.Context, r *node.Run, date string) ([]byte, error) {
	s.say(report{Kind: begins, Date: date, Token: r.Token(), Attempt: r.Attempt()})
	select {
	case <-time.After(400 * time.Millisecond): // hard work
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	file := fmt.Sprintf("%s.%d", date, r.Token())
	return []byte(file), os.WriteFile(filepath.Join(s.bills, file), []byte("all customers"), 0o600)
}

// records lists what the cluster has on record.
func (s *service) records(ctx context.Context) (list []record, err error) {
	for j, err := range s.node.Shard("billing").Jobs(ctx, "billing/") {
		if err != nil {
			return nil, err
		}
		date := strings.TrimPrefix(j.Name, "billing/")
		list = append(list, record{Date: date, Done: j.State == node.JobDone, Token: j.Token, Attempt: j.Attempt, File: string(j.Result)})
	}
	return list, nil
}

// dateOf is the i-th date of the story.
func dateOf(i int) string {
	return time.Date(2026, time.November, 29, 0, 0, 0, 0, time.UTC).AddDate(0, 0, i).Format(time.DateOnly)
}
