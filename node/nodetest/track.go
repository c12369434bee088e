package nodetest

import (
	"github.com/oarlock/oarlock/node"
)

// A track is everything that was granted of one exclusive thing.
type track struct {
	holds []*tracked
	high  node.Token
}

type tracked struct {
	hold node.Hold
	lost error // the first that Check said
}

// Track watches a hold of something that is exclusive, such as a lock, until the end of the test: at any instant at most one of
// the holds that were tracked under one name is trusted, each has a larger token than those before it, and a lost one stays lost.
func (c *Cluster) Track(name string, h node.Hold) {
	k := c.checks
	k.mu.Lock()
	t := k.tracks[name]
	if t == nil {
		t = &track{}
		k.tracks[name] = t
	}
	high := t.high
	t.high = max(high, h.Token())
	t.holds = append(t.holds, &tracked{hold: h})
	k.mu.Unlock()
	if h.Token() <= high {
		k.failf("%s was granted with token %d after token %d", name, h.Token(), high)
	}
	k.checkTracks()
}

// checkTracks holds the tracked holds against the invariants.
func (k *checker) checkTracks() {
	k.mu.Lock()
	tracks := make(map[string][]*tracked, len(k.tracks))
	for name, t := range k.tracks {
		tracks[name] = t.holds[:len(t.holds):len(t.holds)]
	}
	k.mu.Unlock()
	for name, holds := range tracks {
		k.checkTrack(name, holds)
	}
}

// checkTrack asks the holds one after the other; those that were trusted are asked again when the last was, since a lost hold is
// never trusted again.
func (k *checker) checkTrack(name string, holds []*tracked) {
	var trusted []*tracked
	for _, t := range holds {
		err := t.hold.Check()
		k.mu.Lock()
		lost := t.lost
		if lost == nil {
			t.lost = err
		}
		k.mu.Unlock()
		switch {
		case err == nil && lost != nil:
			k.failf("%s: token %d is trusted again after %v", name, t.hold.Token(), lost)
		case err == nil:
			trusted = append(trusted, t)
		}
	}
	for i, t := range trusted {
		if i < len(trusted)-1 && t.hold.Check() == nil {
			k.failf("%s: tokens %d and %d are both trusted", name, t.hold.Token(), trusted[len(trusted)-1].hold.Token())
		}
	}
}
