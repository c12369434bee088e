// Package fence checks fencing tokens where they must be checked: at the resource that a lock protects.
//
// A lock service can grant a lock to one holder at a time, but it cannot stop a holder that was paused after its last
// look at the lock and writes when it wakes up, minutes later. Only the resource can, if each write carries the token of
// the grant it is made under and the resource remembers the highest token it has seen: a smaller one belongs to a grant
// that has ended, and its write is refused. Tokens of one shard of oarlock only ever rise, so this is enough.
//
// # What there is
//
//   - Guard, for what lives in the memory of one process: a cache, a device, a file that only this process writes.
//   - SQL, for a database: a table of highest tokens, checked in the transaction of the write itself.
//   - HTTP, for a server whose handlers write: a middleware over a Guard, and the client's side of it.
//
// Each of them refuses a smaller token with a *StaleError, which says what was seen and matches ErrStale, accepts an
// equal one, since one holder may write many times, and remembers a larger one. Tokens are plain uint64 from 1 to
// MaxToken; give a node.Token as uint64(lock.Token()). The package imports nothing but the standard library, so that a
// process that only keeps the resource need not embed a node.
//
// # What a resource is
//
// A resource is a name for what one lock protects. Tokens are compared within a resource and nowhere else, and must all
// come from one shard: those of different shards, or of different clusters, say nothing about each other. Use the same
// resource for everything that is written under one lock, and never one resource for two locks: if their grants
// interleave, the holder of one locks out the holder of the other.
//
// # What it is not
//
// It is no lock: two writers with the same token are both let in, one after the other. It does not know whether the
// highest token is still held, only that none larger was shown; so a new holder should show its token, by a write or a
// read that is checked, before it acts on what it reads. And a check protects only what happens together with it: use
// Guard.Do, SQL.Do or the middleware, which hold the resource until the write is done.
//
// # Object stores
//
// A store with conditional puts (If-Match on the entity tag, If-None-Match: * for a new object) can check tokens without
// a server of yours in front. Keep the token in the object's metadata, and write in three steps:
//
//  1. Read the object's entity tag and its token.
//  2. If that token is larger than yours, stop: Compare returns the *StaleError.
//  3. Put with your token in the metadata, on the condition that the entity tag is still the one read. If the store
//     refuses (412), somebody wrote in between: begin again at 1.
//
// The condition makes 2 and 3 one step, also for a put that was delayed on its way. All writers must do so, and every
// delete must leave an object with the token behind: an object that is absent remembers nothing. Some stores make the entity
// tag of the content alone, as S3 does: there a write of the same content under a newer token leaves the tag as it was, and a late put
// would pass. So put the token into the content too, or use a generation number if the store has one. The example ObjectStore
// shows it whole.
package fence
