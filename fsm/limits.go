package fsm

import "time"

// Version is the newest cluster format version that this package speaks: the commands it knows, and the snapshots
// and state it writes once a cluster was raised to it.
const Version = 1

// Limits of commands. They are part of the format version and the same on every replica, since a command that one
// replica refuses and another accepts would make them differ for ever. A node may refuse more before it proposes.
const (
	MaxKey       = 1024                 // bytes of a config key, at least 1
	MaxName      = 1024                 // bytes of a lock's name, at least 1
	MaxValue     = 512 << 10            // bytes of a config value
	MaxLockValue = 64 << 10             // bytes of the value that a lock's holder shows
	MaxNames     = 64                   // further names of a Lock that takes several at once
	MaxPermits   = 1 << 20              // of a semaphore, at least 1
	MaxHold      = 366 * 24 * time.Hour // bound of a grant's length, zero: none
	MaxGrace     = 24 * time.Hour       // that a name stays closed after a holder died
	MaxJobResult = 64 << 10             // bytes of a completed job's result
	MaxPass      = time.Minute          // that one PassTime adds
	MaxNode      = 255                  // bytes of a node's id, at least 1
	MaxRecordTTL = 366 * 24 * time.Hour // of a config record, zero: it never expires
	MaxDeleted   = 1024                 // records that one DeletePrefix removes
	MaxRefs      = 4096                 // records that one ExpireRecords or AgeRecords names
	MaxTxnOps    = 128                  // conditions, and operations of the longer list, of a Txn
	MaxTxnBytes  = 1 << 20              // of all keys and values of a Txn
	MaxTTL       = 24 * time.Hour       // of a session
	MaxLease     = time.Hour            // of an owner
	MaxIDs       = 1 << 16              // sessions that one operation names
	MaxResults   = 1 << 16              // remembered, unacknowledged results of one session
	maxFormer    = 256                  // sessions that one EndFormer ends
	NonceSize    = 16                   // bytes of a session's nonce
)

// MaxDeletedBytes bounds the values that one DeletePrefix or ExpireRecords removes; the first one is removed whatever its size.
const MaxDeletedBytes = 4 << 20

// keptValue is the largest value of a conflicting record, or result of a job, that is remembered with a result.
const keptValue = 1 << 10

// maxAnswers is how much of values that a transaction has read is answered at all, in bytes: a node has to fit it into one message.
const maxAnswers = 4 << 20

// keptAnswers is how much of values that a transaction has read is remembered with its result, in bytes.
const keptAnswers = 64 << 10
