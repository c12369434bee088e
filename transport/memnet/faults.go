package memnet

import "time"

// A path is one direction between two addresses.
type path struct{ from, to string }

func (p path) back() path { return path{from: p.to, to: p.from} }

// A rule is what is wrong with one path.
type rule struct {
	refused       bool // resets and refuses: Partition
	cut           bool // swallows silently: Cut, Drop
	slow          bool // delay and jitter are set and replace the network's
	delay, jitter time.Duration
	loss          float64
}

// Partition parts a and b both ways, loudly: their connections break with a reset at once, new dials are refused, and
// packets vanish. It is what a firewall that rejects does, or a host that is up while the process is gone.
func (n *Network) Partition(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changeLocked(a, b, true, func(r *rule) { r.refused = true })
	for s := range n.streams {
		if n.refusedLocked(s.path) {
			s.resetLocked()
		}
	}
}

// Cut swallows everything that goes from one address to the other, without any error: packets vanish, stream bytes
// wait to be sent again. The other direction still works; but a stream's writer learns nothing of a peer that closed,
// and dials in both directions hang, because a handshake needs both.
func (n *Network) Cut(from, to string) {
	n.change(from, to, false, func(r *rule) { r.cut = true })
}

// Drop is Cut in both directions: the pair hears nothing of each other, and no error either.
func (n *Network) Drop(a, b string) {
	n.change(a, b, true, func(r *rule) { r.cut = true })
}

// Delay makes every write between a and b, both ways, take d plus a random part of jitter. Streams keep their order,
// packets may overtake each other. It replaces the network's own delay for the pair; zeros mean at once. What is on its
// way already arrives when it would have.
func (n *Network) Delay(a, b string, d, jitter time.Duration) {
	n.change(a, b, true, func(r *rule) { r.slow, r.delay, r.jitter = true, d, jitter })
}

// Loss loses packets between a and b, both ways, each with probability p. A stream sees no corruption and no gap but
// the delay of retransmissions: 200 ms, doubling.
func (n *Network) Loss(a, b string, p float64) {
	n.change(a, b, true, func(r *rule) { r.loss = p })
}

// Heal takes every fault between a and b away, both ways. Faults of one whole address, by Isolate and Hold, stay.
// Streams that were cut and not reset go on without having lost a byte.
func (n *Network) Heal(a, b string) {
	n.change(a, b, true, func(r *rule) { *r = rule{} })
}

// HealAll takes every fault of every pair away, and every isolation. An endpoint that is held stays so until Resume: a
// paused process is not a fault of the network.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settleLocked()
	clear(n.paths)
	clear(n.isolated)
	n.wakeLocked()
}

// Isolate pulls the cable of addr: nothing goes in or out, and nobody gets an error. Rejoin or HealAll ends it.
func (n *Network) Isolate(addr string) {
	n.flag(n.isolated, addr, true)
}

// Rejoin ends Isolate. Streams that were not reset meanwhile go on.
func (n *Network) Rejoin(addr string) {
	n.flag(n.isolated, addr, false)
}

// Hold pauses addr as far as its peers can see: all traffic in and out waits, packets too (as many as a socket's queue
// holds), and arrives in order after Resume. The process behind it runs on in its own time.
func (n *Network) Hold(addr string) {
	n.flag(n.held, addr, true)
}

// Resume ends Hold and delivers what waited.
func (n *Network) Resume(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flagLocked(n.held, addr, false)
	parked := n.parked
	n.parked = nil
	for _, d := range parked {
		n.routeLocked(d)
	}
}

func (n *Network) flag(set map[string]bool, addr string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flagLocked(set, addr, on)
}

func (n *Network) flagLocked(set map[string]bool, addr string, on bool) {
	n.settleLocked()
	if on {
		set[addr] = true
	} else {
		delete(set, addr)
	}
	n.wakeLocked()
}

func (n *Network) change(a, b string, both bool, edit func(*rule)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changeLocked(a, b, both, edit)
}

// changeLocked edits the rule of one direction, or of both, and wakes whoever waits on it.
func (n *Network) changeLocked(a, b string, both bool, edit func(*rule)) {
	n.settleLocked()
	paths := []path{{a, b}}
	if both && a != b {
		paths = append(paths, path{b, a})
	}
	for _, p := range paths {
		r := n.paths[p]
		edit(&r)
		if r == (rule{}) {
			delete(n.paths, p)
		} else {
			n.paths[p] = r
		}
	}
	n.wakeLocked()
}

// openLocked says whether bytes pass along p now.
func (n *Network) openLocked(p path) bool {
	return !n.heldLocked(p) && !n.cutLocked(p) && !n.refusedLocked(p)
}

func (n *Network) heldLocked(p path) bool { return n.held[p.from] || n.held[p.to] }

func (n *Network) cutLocked(p path) bool {
	return p.from != p.to && (n.paths[p].cut || n.isolated[p.from] || n.isolated[p.to])
}

func (n *Network) refusedLocked(p path) bool { return p.from != p.to && n.paths[p].refused }
