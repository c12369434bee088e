package env

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// refresh is how often Fast's offset follows the boot clock.
const refresh = 50 * time.Millisecond

// systemClock reads CLOCK_BOOTTIME and keeps timers on it with one timerfd, since Go's own timers stop during suspend.
type systemClock struct {
	base   time.Time    // with a monotonic reading
	offset atomic.Int64 // boot time minus time since base

	fd   *os.File // timerfd
	stop chan struct{}
	wg   sync.WaitGroup
	once sync.Once

	mu      sync.Mutex // guards the fields below
	pending timerHeap
	seq     uint64
}

func newSystemClock() (*systemClock, error) {
	if _, err := readBoot(); err != nil {
		return nil, err
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timerfd: %w", err)
	}
	c := &systemClock{base: time.Now(), fd: os.NewFile(uintptr(fd), "timerfd"), stop: make(chan struct{})}
	c.follow()
	c.wg.Add(2)
	go c.refreshLoop() // stops when Close closes stop
	go c.timerLoop()   // stops when Close closes the descriptor
	return c, nil
}

func readBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Now reads the boot clock: a system call.
func (c *systemClock) Now() time.Duration {
	d, err := readBoot()
	if err != nil {
		// It worked when the clock was made and takes no resource; were it to fail all the same, the fast reading is the
		// best there is.
		return c.Fast()
	}
	return d
}

// Fast is Go's monotonic reading plus an offset that is at most refresh old.
func (c *systemClock) Fast() time.Duration {
	return time.Since(c.base) + time.Duration(c.offset.Load())
}

// follow sets the offset. The boot clock is read after the other, so Fast may run ahead by the time in between, never behind: a
// lease seems to end early rather than late. Of three readings the least interrupted counts.
func (c *systemClock) follow() {
	best := time.Duration(math.MaxInt64)
	for range 3 {
		mono := time.Since(c.base)
		boot, err := readBoot()
		if err != nil {
			return
		}
		best = min(best, boot-mono)
		if time.Since(c.base)-mono < 100*time.Microsecond {
			break
		}
	}
	c.offset.Store(int64(best))
}

func (c *systemClock) refreshLoop() {
	defer c.wg.Done()
	t := time.NewTicker(refresh)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.follow()
		case <-c.stop:
			return
		}
	}
}

type bootTimer struct {
	c     *systemClock
	at    time.Duration
	seq   uint64
	f     func()
	index int // in the heap; -1: not there
}

// AfterFunc calls f from the clock's goroutine once the boot clock has reached at.
func (c *systemClock) AfterFunc(at time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	t := &bootTimer{c: c, at: at, seq: c.seq, f: f}
	heap.Push(&c.pending, t)
	if t.index == 0 {
		c.armLocked()
	}
	return t
}

// Stop takes the timer out.
func (t *bootTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.c.pending, t.index)
	return true
}

// armLocked sets the timerfd to the earliest deadline. A deadline that has passed fires at once.
func (c *systemClock) armLocked() {
	if len(c.pending) == 0 {
		return
	}
	at := max(c.pending[0].at, 1) // 0 would disarm
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	raw, err := c.fd.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

func (c *systemClock) timerLoop() {
	defer c.wg.Done()
	var buf [8]byte
	for {
		if _, err := c.fd.Read(buf[:]); err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECANCELED) {
				continue
			}
			return
		}
		for _, f := range c.due() {
			f()
		}
	}
}

func (c *systemClock) due() []func() {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var fs []func()
	for len(c.pending) > 0 && c.pending[0].at <= now {
		fs = append(fs, heap.Pop(&c.pending).(*bootTimer).f)
	}
	c.armLocked()
	return fs
}

// Close stops the clock's goroutines; timers that are still pending never fire.
func (c *systemClock) Close() error {
	var err error
	c.once.Do(func() {
		close(c.stop)
		err = c.fd.Close()
		c.wg.Wait()
	})
	return err
}

type timerHeap []*bootTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*bootTimer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
