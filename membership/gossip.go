package membership

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log"
	"time"

	"github.com/hashicorp/memberlist"
)

// How the gossip library is set up.
const (
	gossipInterval = 100 * time.Millisecond
	syncInterval   = 5 * time.Second // a full exchange with a random member; finds what gossip has missed
	streamTimeout  = 5 * time.Second
	maxPacket      = 1400
	maxFarewells   = 32 // records of members that left, in a full exchange
	keyLabel       = "oarlock gossip encryption v1"

	// atOnce bounds calls that queue a broadcast and then would wait until it was sent.
	atOnce = time.Nanosecond
)

// A gossip runs memberlist. memberlist knows each member by its id, at an address made of the id that never changes; the
// wire turns ids into real addresses. So a member that restarts elsewhere is no conflict for memberlist: it sees old
// claims about itself and answers them with a higher number, as after any restart.
type gossip struct {
	list *memberlist.Memberlist
	wire *wire
}

// openGossip starts memberlist. It waits for nobody.
func openGossip(c Config, t *table, out *logWriter) (*gossip, error) {
	keys, err := keyring(c)
	if err != nil {
		return nil, err
	}
	w := newWire(c.Transport, c.Self.ID, t.addr)
	d := delegate{t}
	conf := memberlist.DefaultLANConfig()
	conf.Name = c.Self.ID
	conf.Transport = w
	conf.BindPort, conf.AdvertisePort = 0, 0 // port 0 says: look the id up
	conf.ProbeInterval, conf.ProbeTimeout = c.ProbeInterval, c.ProbeTimeout
	conf.SuspicionMaxTimeoutMult = 3 // a suspicion that nobody shares lasts 3 x 2 s instead of 2 s
	conf.RetransmitMult = 6
	conf.UDPBufferSize = maxPacket
	conf.PushPullInterval = syncInterval
	conf.GossipInterval = gossipInterval
	conf.TCPTimeout = streamTimeout
	conf.EnableCompression = false
	conf.Keyring = keys
	conf.Delegate, conf.Events, conf.Alive, conf.Ping = d, d, d, d
	conf.Logger = log.New(out, "", 0)
	list, err := memberlist.Create(conf)
	if err != nil {
		w.stop()
		return nil, fmt.Errorf("membership: start gossip: %w", err)
	}
	return &gossip{list: list, wire: w}, nil
}

// keyring derives the keys from the secrets. Without a secret there is none.
func keyring(c Config) (*memberlist.Keyring, error) {
	if c.Secret == nil {
		return nil, nil
	}
	var keys [][]byte
	for _, s := range append([][]byte{c.Secret}, c.OldSecrets...) {
		k, err := hkdf.Key(sha256.New, s, nil, keyLabel, 32)
		if err != nil {
			return nil, fmt.Errorf("membership: derive key: %w", err)
		}
		keys = append(keys, k)
	}
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, fmt.Errorf("membership: make keyring: %w", err)
	}
	return ring, nil
}

// join exchanges all members with the node at addr, host:port. It takes at most twice streamTimeout.
func (g *gossip) join(addr string) error {
	// memberlist hands the name before the slash to the wire and does not look at it.
	_, err := g.list.Join([]string{addr + "/[::]:0"})
	return err
}

// announce gossips the current record of this node.
func (g *gossip) announce() {
	// The error would say that nobody got it yet.
	_ = g.list.UpdateNode(atOnce)
}

// leave gossips that this node is gone. It must not be called after shutdown: memberlist would panic.
func (g *gossip) leave() { _ = g.list.Leave(atOnce) }

// ping says whether node id answers at once.
func (g *gossip) ping(id string) bool {
	_, err := g.list.Ping(id, wireAddr(unresolved))
	return err == nil
}

// shutdown stops memberlist. Some of memberlist's own goroutines may live on for seconds; they can reach nothing.
func (g *gossip) shutdown() error {
	if err := g.list.Shutdown(); err != nil {
		return fmt.Errorf("membership: stop gossip: %w", err)
	}
	return nil
}

// A delegate hands memberlist's callbacks to the table. They run under memberlist's lock.
type delegate struct{ t *table }

func (d delegate) NotifyAlive(n *memberlist.Node) error { return d.t.vet(n.Name, n.Meta) }
func (d delegate) NotifyJoin(n *memberlist.Node)        { d.t.heard(n.Name, n.Meta) }
func (d delegate) NotifyUpdate(n *memberlist.Node)      { d.t.heard(n.Name, n.Meta) }
func (d delegate) NotifyLeave(n *memberlist.Node)       { d.t.gone(n.Name) }

func (d delegate) AckPayload() []byte { return nil }
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.t.answered(n.Name)
}

// NodeMeta returns this node's record, which is never larger than memberlist's limit: it is the same 512 bytes.
func (d delegate) NodeMeta(int) []byte { return d.t.encoded() }

func (d delegate) NotifyMsg([]byte)                {}
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState adds the farewells of members that left to a full exchange, each behind two bytes of length. memberlist's
// own exchange says that they are gone, but not that they meant to go.
func (d delegate) LocalState(bool) []byte {
	var b []byte
	for _, f := range d.t.farewells(maxFarewells) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(f)))
		b = append(b, f...)
	}
	return b
}

func (d delegate) MergeRemoteState(b []byte, _ bool) {
	for range maxFarewells {
		if len(b) < 2 {
			return
		}
		n := int(binary.BigEndian.Uint16(b))
		if b = b[2:]; n > len(b) {
			return
		}
		d.t.departed(b[:n])
		b = b[n:]
	}
}
