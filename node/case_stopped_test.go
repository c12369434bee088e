//go:build unix

package node_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oarlock/oarlock/node"
	"github.com/oarlock/oarlock/node/internal/env"
)

// The environment that makes this test binary a process which holds a lock, over and over, and says when.
const (
	holderJoin = "OARLOCK_TEST_HOLDER" // the address to join
	holderDir  = "OARLOCK_TEST_HOLDER_DIR"
	holderBusy = "OARLOCK_TEST_HOLDER_BUSY" // not empty: it also computes without end, on its only CPU
)

// holderTTL is the TTL of the holders' locks.
const holderTTL = time.Second

func TestMain(m *testing.M) {
	if join := os.Getenv(holderJoin); join != "" {
		if err := beHolder(join); err != nil {
			fmt.Fprintln(os.Stderr, "holder:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beHolder takes the lock, prints "grant token time" after each grant and "write token time" for each check that was well, where the time, since the
// machine's boot, is of before the check; until the standard input ends.
func beHolder(join string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // stops when the parent is gone or has closed it
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if os.Getenv(holderBusy) != "" {
		runtime.GOMAXPROCS(1)
		go func() { // stops with ctx
			for ctx.Err() == nil {
				for i := 0; i < 1e8; i++ {
				}
			}
		}()
	}
	e, err := env.System()
	if err != nil {
		return err
	}
	n, err := node.Open(ctx, node.Config{Name: os.Getenv(holderDir), Dir: os.Getenv(holderDir), Bind: "127.0.0.1:0", Join: []string{join},
		NoReplicas: true, Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	defer n.Close()
	for ctx.Err() == nil {
		l, err := n.ShardAt(1).Lock(ctx, "l", &node.LockOptions{TTL: holderTTL})
		if err != nil {
			continue // the session was lost meanwhile, or ctx ended
		}
		fmt.Println("grant", uint64(l.Token()), int64(e.Clock.Now()))
		for {
			at := e.Clock.Now()
			if l.Check() != nil {
				break
			}
			fmt.Println("write", uint64(l.Token()), int64(at))
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// holders are the processes that compete for the lock, and what they said.
type holders struct {
	t     *testing.T
	procs []*exec.Cmd
	news  chan struct{} // has an element after something was said

	mu     sync.Mutex // guards the fields below
	grants map[node.Token]grantSeen
	high   node.Token // the last grant
}

// grantSeen is a grant: to whom, when at the latest, and the last instant at which a check of it was begun that was well.
type grantSeen struct {
	to        int
	at, wrote time.Duration
	writes    int
}

// start starts one more holder.
func (h *holders) start(addr string, environment ...string) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	i := len(h.procs)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), holderJoin+"="+addr, holderDir+"="+h.t.TempDir()), environment...)
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		h.t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	heard := make(chan struct{})
	go func() { // stops when the process has ended
		defer close(heard)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			h.hear(i, lines.Text())
		}
	}()
	h.procs = append(h.procs, cmd)
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		stdin.Close()
		<-heard
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("holder %d: %v", i, err)
		}
	})
}

func (h *holders) hear(i int, line string) {
	var what string
	var token, at int64
	if _, err := fmt.Sscan(line, &what, &token, &at); err != nil {
		h.t.Errorf("holder %d says %q: %v", i, line, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.grants[node.Token(token)]
	if what == "grant" {
		g.to, g.at = i, time.Duration(at)
		h.high = max(h.high, node.Token(token))
	} else {
		g.wrote = time.Duration(at)
		g.writes++
	}
	h.grants[node.Token(token)] = g
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// awaitWriter waits until whoever got the lock last writes, and returns who.
func (h *holders) awaitWriter() (i int, token node.Token) {
	h.t.Helper()
	h.mu.Lock()
	token, writes := h.high, h.grants[h.high].writes
	h.mu.Unlock()
	limit := time.After(time.Minute)
	for {
		select {
		case <-h.news:
		case <-limit:
			h.t.Fatal("nobody writes for a minute")
		}
		h.mu.Lock()
		g := h.grants[h.high]
		if h.high != token {
			token, writes = h.high, 0
		}
		h.mu.Unlock()
		if g.writes > writes {
			return g.to, token
		}
	}
}

// signal sends s to holder i.
func (h *holders) signal(i int, s os.Signal) {
	h.t.Helper()
	if err := h.procs[i].Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
}

// check compares all grants: no check of an earlier one was well after a later one had been granted.
func (h *holders) check() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for a, was := range h.grants {
		for b, is := range h.grants {
			if a < b && is.at > 0 && was.wrote > is.at {
				h.t.Errorf("two writers: holder %d of token %d checks well %v after holder %d had token %d", was.to, a, was.wrote-is.at, is.to, b)
			}
		}
	}
}

// A holder that was stopped, for a time around its TTL, or that shares its only CPU with a computation without end, writes nothing after another has
// the lock: each check looks at the clock, and does not rely on a timer that has fired. Real processes, stopped by a signal at any phase of their renewals: case 123.
func TestCase123_StoppedHolderNeverWritesAgain(t *testing.T) {
	t.Parallel()
	n := openCluster(t, 1)[0]
	h := &holders{t: t, news: make(chan struct{}, 1), grants: map[node.Token]grantSeen{}}
	h.start(n.Addr())
	h.start(n.Addr(), holderBusy+"=1")
	rounds := nightly(10, 500)
	for range rounds {
		i, _ := h.awaitWriter()
		<-time.After(rand.N(holderTTL / 4))
		h.signal(i, syscall.SIGSTOP)
		<-time.After(holderTTL - 200*time.Millisecond + rand.N(400*time.Millisecond))
		h.signal(i, syscall.SIGCONT)
	}
	h.awaitWriter()
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	by := map[int]int{}
	for _, g := range h.grants {
		by[g.to]++
	}
	t.Logf("%d stops, grants by holder: %v", rounds, by)
	if by[0] == 0 || by[1] == 0 || len(h.grants) < 3 {
		t.Errorf("grants by holder: %v in %d stops, want that it changes hands", by, rounds)
	}
}
