// Package wire has the messages that nodes exchange, and the numbers of the methods that carry them.
package wire

//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=module=github.com/oarlock/oarlock node/internal/wire/wire.proto

// Methods of transport/rpc.
const (
	MethodOwner   uint16 = 1 // OwnerRequest, OwnerReply
	MethodRenew   uint16 = 2 // RenewRequest, RenewReply
	MethodPlan    uint16 = 3 // PlanRequest, PlanReply
	MethodCluster uint16 = 4 // ClusterRequest, ClusterReply
	MethodFollow  uint16 = 5 // FollowRequest, FollowReply
	MethodChanges uint16 = 6 // ChangesRequest, ChangesReply
)

// Codes of errors that a handler returns.
const (
	CodeForeign uint16 = 1 // the caller is of another cluster
	CodeVersion uint16 = 2 // the caller speaks a format version that this node does not
	CodeInvalid uint16 = 3 // the request cannot be read
	CodeClosing uint16 = 4 // this node is stopping; nothing was done
	CodeTwin    uint16 = 5 // another process with the caller's identity is known: the caller must stop; nothing was done
)
