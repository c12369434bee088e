// Package wire has the messages that nodes exchange, and the numbers of the methods that carry them.
package wire

//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=module=github.com/oarlock/oarlock node/internal/wire/wire.proto

// Methods of transport/rpc.
const (
	MethodOp      uint16 = 1  // OpRequest, OpReply
	MethodAwait   uint16 = 2  // AwaitRequest, OpReply
	MethodRead    uint16 = 3  // ReadRequest, ReadReply
	MethodOwner   uint16 = 4  // OwnerRequest, OwnerReply
	MethodRenew   uint16 = 5  // RenewRequest, RenewReply
	MethodPlan    uint16 = 6  // PlanRequest, PlanReply
	MethodCluster uint16 = 7  // ClusterRequest, ClusterReply
	MethodObserve uint16 = 8  // ObserveRequest, ObserveReply
	MethodFollow  uint16 = 9  // FollowRequest, FollowReply
	MethodNotice  uint16 = 10 // NoticeRequest, NoticeReply
	MethodLocks   uint16 = 11 // LocksRequest, LocksReply
)

// Codes of errors that a handler returns.
const (
	CodeForeign uint16 = 1 // the caller is of another cluster
	CodeVersion uint16 = 2 // the caller speaks a format version that this node does not
	CodeInvalid uint16 = 3 // the request cannot be read
	CodeClosing uint16 = 4 // this node is stopping; nothing was done
)
