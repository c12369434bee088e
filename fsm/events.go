package fsm

import "github.com/oarlock/oarlock/fsm/fsmpb"

// An EventKind says what an Event tells.
type EventKind uint8

// Kinds of events, with the fields of Event that each fills.
const (
	Claimed       EventKind = iota + 1 // a claim was accepted: Token
	Released                           // the owner released its claim: Token
	Granted                            // a lock was granted, at once or from the queue: Session, Seq, Token, Name
	Freed                              // a grant ended by unlock, cancel or its session's end: Session, Seq, Token, Name
	SessionOpened                      // Session
	SessionEnded                       // Session, Expired
	Changed                            // a config record was written or deleted: Name (the key), Revision, Deleted
	Raised                             // the cluster's version rose: Revision stays zero, Machine.Version has it
)

// An Event is something that an entry changed and somebody may be waiting for. Events are hints to look: the state
// itself says the truth, and after a Restore there are none for what the snapshot skipped. Name is never written
// to and may be kept.
type Event struct {
	Kind     EventKind
	Expired  bool
	Deleted  bool
	Session  Token
	Seq      uint64
	Token    Token
	Revision Revision
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
