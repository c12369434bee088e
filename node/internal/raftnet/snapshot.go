package raftnet

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// errChunkRefused says that the receiver does not want the snapshot, or cannot store it.
var errChunkRefused = errors.New("raftnet: peer refused a chunk of the snapshot")

// A snapshotConn sends the chunks of one snapshot. dragonboat uses it from one goroutine.
type snapshotConn struct {
	n    *Net
	nc   net.Conn
	stop func() bool
	buf  []byte
}

var _ raftio.ISnapshotConnection = (*snapshotConn)(nil)

// SendChunk sends the chunk and returns when the receiver has taken it. An error means that this snapshot will not arrive;
// dragonboat makes and sends another. It blocks while the receiver makes progress, at most 30 s without any, and 2 minutes
// for the answer.
func (s *snapshotConn) SendChunk(chunk pb.Chunk) error {
	frame, err := encode(s.buf, frameChunk, &chunk, chunkLimit)
	if err != nil {
		return fmt.Errorf("send chunk %d: %w", chunk.ChunkId, err)
	}
	s.buf = frame[:0] // at most chunkLimit, and the next chunk needs it
	if err := writePieces(s.nc, frame, chunkStall); err != nil {
		return fmt.Errorf("send chunk %d: %w", chunk.ChunkId, err)
	}
	if err := s.nc.SetReadDeadline(time.Now().Add(ackTimeout)); err != nil {
		return fmt.Errorf("send chunk %d: %w", chunk.ChunkId, err)
	}
	var ack [1]byte
	if _, err := s.nc.Read(ack[:]); err != nil {
		return fmt.Errorf("send chunk %d: %w", chunk.ChunkId, err)
	}
	if ack[0] != taken {
		return fmt.Errorf("send chunk %d: %w", chunk.ChunkId, errChunkRefused)
	}
	s.n.f.count.sentChunks.Add(1)
	s.n.f.count.sentBytes.Add(uint64(len(frame)))
	return nil
}

// Close ends the connection.
func (s *snapshotConn) Close() {
	s.stop()
	s.n.drop(s.nc)
}
