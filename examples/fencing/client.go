//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/fence"
)

// clientConfig is what a process of the story is started with.
type clientConfig struct{ name, dir, join string }

// An order is a line that a process reads, a report the line that it answers with.
type (
	order struct {
		Do  string // one of the words below
		URL string // of the account
		Add int    // what to pay in
	}
	report struct {
		Addr    string     // after the start: where the process listens
		Token   node.Token // of the lock
		Balance int        // read, or to be written
		Seen    uint64     // by the bank, if it refused the write; else 0
		Lost    bool       // after the write: what the lock says of itself
		Err     string     // why the order could not be done
	}
)

// Words of an order.
const (
	doPrepare = "prepare" // take the lock, read the balance, make the request that writes the new one
	doWrite   = "write"   // send that request
	doUnlock  = "unlock"
)

// client is a process that pays in.
type client struct {
	node    *node.Node
	lock    *node.Lock
	request *http.Request
}

// runClient is a process of the story. It ends when in ends, so that no process outlives the one that started it.
func runClient(c clientConfig, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	orders, bad := make(chan order), make(chan error, 1)
	go func() { // stops when in ends, or with the process
		defer end()
		defer close(orders)
		bad <- readOrders(ctx, in, orders)
	}()
	conf := node.Config{Name: c.name, Dir: c.dir, Bind: "127.0.0.1:0", SessionTTL: lease * unit, Replicas: 1}
	if c.join == "" {
		conf.Bootstrap, conf.Shards = 1, 1 // this process is the cluster: one node, where three would be in real life
	} else {
		conf.Join, conf.NoReplicas = strings.Split(c.join, ","), true // so that the pause of a client stops nobody else
	}
	n, err := node.Open(ctx, conf)
	if err != nil {
		return fmt.Errorf("open %s: %w", c.name, err)
	}
	defer n.Close()
	if err := n.Ready(ctx); err != nil {
		return fmt.Errorf("wait for %s: %w", c.name, err)
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(report{Addr: n.Addr()}); err != nil {
		return err
	}
	x := &client{node: n}
	for o := range orders {
		r, err := x.obey(ctx, o)
		if err != nil {
			r.Err = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return err
		}
	}
	return <-bad
}

func readOrders(ctx context.Context, in io.Reader, orders chan<- order) error {
	for d := json.NewDecoder(in); ; {
		var o order
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read orders: %w", err)
		}
		select {
		case orders <- o:
		case <-ctx.Done():
			return nil
		}
	}
}

func (x *client) obey(ctx context.Context, o order) (report, error) {
	switch o.Do {
	case doPrepare:
		return x.prepare(ctx, o)
	case doWrite:
		return x.write()
	case doUnlock:
		return report{}, x.lock.Unlock(ctx)
	}
	return report{}, fmt.Errorf("order %q: %w", o.Do, errors.ErrUnsupported)
}

// prepare does what a careful client does: it takes the lock, and looks again whether it holds it before it writes.
func (x *client) prepare(ctx context.Context, o order) (r report, err error) {
	if x.lock, err = x.node.Shard("account").Lock(ctx, "account", nil); err != nil {
		return r, err
	}
	r.Token = x.lock.Token()
	if r.Balance, err = x.read(ctx, o.URL); err != nil {
		return r, err
	}
	write := o.URL + "?" + url.Values{"balance": {strconv.Itoa(r.Balance + o.Add)}}.Encode()
	if x.request, err = http.NewRequestWithContext(ctx, http.MethodPut, write, http.NoBody); err != nil {
		return r, err
	}
	fence.SetToken(x.request, uint64(x.lock.Token()))
	return r, x.lock.Check()
}

// write sends the request that was prepared. The check was before: here a pause does its harm.
func (x *client) write() (r report, err error) {
	resp, err := http.DefaultClient.Do(x.request)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.Token, r.Lost = x.lock.Token(), errors.Is(x.lock.Check(), node.ErrLost)
	if stale, ok := errors.AsType[*fence.StaleError](fence.Refused(resp)); ok {
		r.Seen = stale.Seen
	} else if resp.StatusCode != http.StatusOK {
		return r, fmt.Errorf("write: %s", resp.Status)
	}
	return r, nil
}

func (x *client) read(ctx context.Context, url string) (balance int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = fmt.Fscan(resp.Body, &balance)
	return balance, err
}
