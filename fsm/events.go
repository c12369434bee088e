package fsm

import (
	"time"

	"github.com/oarlock/oarlock/fsm/fsmpb"
)

// An EventKind says what an Event tells.
type EventKind uint8

// Kinds of events, with the fields of Event that each fills.
const (
	Claimed         EventKind = iota + 1 // a claim was accepted: Token
	Released                             // the owner released its claim: Token
	Granted                              // a lock was granted, at once or from the queue: Of, Session, Seq, Token, Name
	Freed                                // a grant ended: Of, Session, Seq, Token, Name, Reason
	SessionOpened                        // Session
	SessionEnded                         // Session, Expired: not by its holder's will
	Changed                              // a config record was written or deleted: Name (the key), Revision, Deleted, TTL
	Raised                               // the cluster's version rose: Revision stays zero, Machine.Version has it
	Answered                             // what waited got a result that is no grant, DONE: Of, Session, Seq, Name
	HoldStarted                          // a holder knows of its grant: Of, Session, Seq, Token, Name (its first), Length (its MaxHold)
	RevokeRequested                      // a holder is asked to give up: Of, Session, Seq, Token, Name
	ValueChanged                         // of a grant: Of, Session, Seq, Token, Name
	Closed                               // a holder with a grace died: Of, Session, Seq, Token, Name, Length (the grace)
	Reopened                             // that grace is over: Of, Token, Name
	JobCompleted                         // Of, Session, Seq, Token (of the grant), Name
)

// A Reason says why a grant ended.
type Reason uint8

// Reasons of Freed.
const (
	Unlocked    Reason = iota + 1 // given back, also by the end of its session at its holder's will, or by JobDone
	Expired                       // its session ended for silence, or because its process is dead
	Forced                        // against its holder's will
	Transferred                   // handed to another node
	Cancelled                     // by CancelLock
)

// An Event is something that an entry changed and somebody may be waiting for. Events are hints to look: the state
// itself says the truth, and after a Restore there are none for what the snapshot skipped. Name is never written
// to and may be kept. What concerns a grant of several names is told once for each of them.
type Event struct {
	Kind     EventKind
	Of       fsmpb.Lock_Kind
	Reason   Reason
	Expired  bool
	Deleted  bool
	Session  Token
	Seq      uint64
	Token    Token
	Revision Revision
	TTL      time.Duration
	Length   time.Duration
	Name     []byte
}

// An Entry is one entry of the shard's log. Indexes rise; there may be gaps, which are entries of Raft's own. Apply
// does not keep Data.
type Entry struct {
	Index uint64
	Data  []byte // a marshalled fsmpb.Entry
}

// Applied is what became of one entry. Everything in it is the caller's to keep, but the Results are shared with
// the machine and must not be written to. An entry at or below the applied index is left out: it has no Applied.
type Applied struct {
	Index   uint64
	Attempt uint64          // the command's, zero if it could not be decoded
	Err     error           // nil, or ErrStale, ErrInvalid: the entry changed nothing
	Claim   *ClaimResult    // of a claim
	Results []*fsmpb.Result // of a batch, one for each of its operations
	Events  []Event
}

// A ClaimResult is the outcome of a claim. Current is the claim that stands after it: the claimer's own if it was
// accepted, else the one that it lost against.
type ClaimResult struct {
	Accepted bool
	Current  Claim
}
