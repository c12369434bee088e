package membership

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// How often others are looked for, and how much of it at one time.
const (
	aloneInterval = time.Second
	seekInterval  = 15 * time.Second
	lookupTimeout = 5 * time.Second
	maxTargets    = 64 // addresses in one round
	maxDown       = 16 // of them, those of members that went down
	parallel      = 8
)

// seek contacts addresses of nodes that are not known to be up, until ctx ends. The gossip library does not try dead
// members again, so without this a healed split would stay split.
func (m *Membership) seek(ctx context.Context) {
	var peers pace
	for ctx.Err() == nil {
		m.table.forget(time.Now())
		targets := m.targets()
		if peers.due(time.Now(), m.alone()) {
			targets = append(targets, m.config.Peers()...)
		}
		m.join(ctx, m.resolve(ctx, targets))
		m.rest(ctx)
	}
}

// A pace says when Config.Peers are tried: at once while others are up, since rounds are rare then; alone, at growing intervals up to
// seekInterval, since most of these addresses may be dead for good.
type pace struct {
	last time.Time
	wait time.Duration
}

func (p *pace) due(now time.Time, alone bool) bool {
	switch {
	case !alone:
		p.wait = 0
	case now.Sub(p.last) < p.wait:
		return false
	default:
		p.wait = min(max(2*p.wait, aloneInterval), seekInterval)
	}
	p.last = now
	return true
}

// rest waits for the time between two rounds, which ends early when the node finds itself alone.
func (m *Membership) rest(ctx context.Context) {
	start := time.Now()
	long := seekInterval*4/5 + rand.N(seekInterval*2/5)
	for {
		changed := m.table.changes()
		interval := long
		if m.alone() {
			interval = aloneInterval
		}
		timer := time.NewTimer(time.Until(start.Add(interval)))
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (m *Membership) alone() bool {
	up, _ := m.table.peers()
	return len(up) == 0
}

// targets are the addresses to try, names among them not yet resolved.
func (m *Membership) targets() []string {
	all := slices.Clone(m.config.Join)
	_, down := m.table.peers()
	rand.Shuffle(len(down), func(i, j int) { down[i], down[j] = down[j], down[i] })
	return append(all, down[:min(len(down), maxDown)]...)
}

// resolve replaces DNS names by all their addresses. A name that cannot be resolved is tried again in the next round.
func (m *Membership) resolve(ctx context.Context, targets []string) []string {
	slices.Sort(targets)
	targets = slices.Compact(targets)
	var mu sync.Mutex // guards addrs
	var addrs []string
	each(targets, func(target string) {
		found := m.lookup(ctx, target)
		mu.Lock()
		defer mu.Unlock()
		addrs = append(addrs, found...)
	})
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

func (m *Membership) lookup(ctx context.Context, target string) []string {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil // of Peers; the others were checked
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{target}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := m.config.Lookup(ctx, host)
	if err != nil {
		m.log.Debug("cannot resolve an address to find members at", "addr", target, "err", err)
		return nil
	}
	addrs := make([]string, 0, len(hosts))
	for _, h := range hosts {
		addrs = append(addrs, net.JoinHostPort(h, port))
	}
	return addrs
}

// join exchanges members with every address that is neither this node's own nor that of a member that is up.
func (m *Membership) join(ctx context.Context, addrs []string) {
	up, _ := m.table.peers()
	known := append(up, m.Self().Addr, m.config.Transport.Addr())
	addrs = slices.DeleteFunc(addrs, func(a string) bool { return slices.Contains(known, a) })
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	each(addrs[:min(len(addrs), maxTargets)], func(addr string) {
		if ctx.Err() != nil {
			return
		}
		if err := m.gossip.join(addr); err != nil {
			m.log.Debug("no members found at an address", "addr", addr, "err", err)
		}
	})
}

// each calls f for all items, some of them at one time, and waits.
func each(items []string, f func(string)) {
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for _, item := range items {
		slots <- struct{}{}
		// Stops when f returns, which is bounded by the timeouts of lookups and streams; each waits for it.
		wg.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	wg.Wait()
}
