package raftnet

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
)

// What follows the hello on a connection: frames whose first byte is one of these.
const (
	frameBatch byte = iota + 1
	framePing
	frameChunk
)

// What a receiver answers, in single bytes.
const (
	pong    byte = 1 // to a ping
	taken   byte = 2 // the chunk was taken
	refused byte = 3 // the chunk was refused; the connection ends
)

const (
	// batchLimit bounds a frame of messages: dragonboat gathers up to 64 MiB, and the last message may go beyond.
	batchLimit = 96 << 20
	// chunkLimit bounds a frame with a chunk: dragonboat cuts snapshots into 2 MiB, and adds membership and file names.
	chunkLimit = 16 << 20
	// keptBuffer is the largest buffer that a connection keeps for its next frame.
	keptBuffer = 1 << 20
)

var errMalformed = errors.New("raftnet: malformed message")

// message is a message of dragonboat's that can be encoded.
type message interface {
	Size() int
	MarshalTo(b []byte) (int, error)
}

// encode makes one frame of m in buf, or in a new buffer if it does not fit.
func encode(buf []byte, kind byte, m message, limit int) ([]byte, error) {
	b := append(transport.BeginFrame(buf[:0]), kind)
	start, size := len(b), m.Size()
	if size > limit-1 {
		return buf, fmt.Errorf("%w: %d bytes, at most %d", transport.ErrFrameTooLarge, size, limit-1)
	}
	b = slices.Grow(b, size)[:start+size]
	n, err := m.MarshalTo(b[start:])
	if err != nil {
		return buf, err
	}
	b = b[:start+n]
	return b, transport.EndFrame(b, 0, limit)
}

// keep returns b for the next frame, unless it is so large that keeping it would hold memory for a rare case.
func keep(b []byte) []byte {
	if cap(b) > keptBuffer {
		return nil
	}
	return b[:0]
}

// decodeBatch decodes what node sent, and refuses what dragonboat would answer with a panic, or would believe although the
// sender is somebody else. The result shares nothing with b.
func decodeBatch(b []byte, node string) (batch pb.MessageBatch, err error) {
	if err := unmarshal(&batch, b); err != nil {
		return batch, err
	}
	if batch.SourceAddress != node {
		return batch, fmt.Errorf("%w: from %q over a connection of %s", errMalformed, batch.SourceAddress, node)
	}
	for _, m := range batch.Requests {
		if m.To == 0 || m.From == 0 || !travels(m.Type) {
			return batch, fmt.Errorf("%w: type %d from replica %d to %d", errMalformed, m.Type, m.From, m.To)
		}
	}
	return batch, nil
}

// travels tells the messages that nodes send each other from those that dragonboat keeps for itself and panics over when they
// arrive, and from numbers that no message has. Snapshots travel in chunks.
func travels(t pb.MessageType) bool {
	switch t {
	case pb.NoOP, pb.Ping, pb.Pong, pb.Propose, pb.Replicate, pb.ReplicateResp, pb.RequestVote, pb.RequestVoteResp,
		pb.Heartbeat, pb.HeartbeatResp, pb.ReadIndex, pb.ReadIndexResp, pb.Quiesce, pb.SnapshotReceived,
		pb.LeaderTransfer, pb.TimeoutNow, pb.RateLimit, pb.RequestPreVote, pb.RequestPreVoteResp:
		return true
	}
	return false
}

// decodeChunk decodes one chunk of a snapshot. The result shares nothing with b.
func decodeChunk(b []byte) (chunk pb.Chunk, err error) {
	if err := unmarshal(&chunk, b); err != nil {
		return chunk, err
	}
	if chunk.ReplicaID == 0 || chunk.From == 0 || chunk.IsPoisonChunk() {
		return chunk, fmt.Errorf("%w: chunk %d from replica %d to %d", errMalformed, chunk.ChunkId, chunk.From, chunk.ReplicaID)
	}
	return chunk, nil
}

// unmarshal is into.Unmarshal for bytes of a peer: generated code must not be what a peer can end the process with.
func unmarshal(into interface{ Unmarshal([]byte) error }, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errMalformed, p)
		}
	}()
	if err := into.Unmarshal(b); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}
