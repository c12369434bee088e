// Package membership tells who is here: which nodes exist, at which addresses, with which tags, and which of them seem
// to be down. It wraps a gossip library and runs over a transport.Transport that the node shares with it.
//
// # Gossip decides nothing
//
// What this package says is a rumour: late, possibly wrong, and different on each node. A member that is Failed here may
// be alive behind a broken cable. Nothing may be granted, moved or ended because of it; only a shard's log does that.
// A member is called Failed only after this node, too, got no answer from it, but that proves nothing either.
// What it is for: to find addresses, to show operators what is going on, and to give hints that are checked elsewhere.
//
// # Identity
//
// A member is its ID, a UUID kept on its disk. Addresses are never identity: gossip itself runs on the ID alone, and each
// message to a member goes to the address in the newest record that member has sent. So a member may restart at another
// address, and all members may do so at once, in any order. Records are ordered by incarnation, then by a revision that
// Update raises; an older one never replaces a newer one, whatever rumours are still around.
//
// Two processes with one ID and one incarnation are a copied directory. The first that a node heard of stays, the other
// is shown nowhere. A process that hears of the other, which the later one does at once, is told through Config.OnConflict.
// Admit says the same of processes that introduce themselves in other ways than by gossip.
//
// # Finding each other
//
// Config.Join, Config.Peers and the last addresses of failed members are tried for as long as the node lives: every
// second while it is alone, Peers with growing pauses, and every 15 seconds otherwise. So a split of any length heals by itself once the network does.
//
// # Ordering and blocking
//
// Members, Member, Addr and Self are copies of the state at one instant and never block on the network. Watch delivers,
// for each member, its latest state; states that were overtaken before the reader came back are skipped, and members
// change independently of each other. No reader, however slow, holds up gossip or another reader.
//
// # Trust
//
// With a secret every packet and stream is encrypted and authenticated, and who has the secret is trusted: it can lie
// about others and cost memory. Without one the network is trusted. Still, what arrives is bounded and checked: the size
// of a record and of its fields, the number of members, the bytes and the number of streams at one time. A record that
// cannot be read, or that a later version wrote, is shown nowhere and logged once.
package membership
