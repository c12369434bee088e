package raftnet

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/oarlock/oarlock/transport"
)

// A hello survives the wire, and every cut or lengthened one is refused.
func TestHello_RoundTrip(t *testing.T) {
	h := hello{format: 300, boot: Boot{7, 1 << 63}, cluster: clusterX, node: nodeA, meantTo: nodeB}
	wire := h.append(nil)
	got, err := decodeHello(wire)
	if diff := cmp.Diff(h, got, cmp.AllowUnexported(hello{})); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for i := range wire {
		if _, err := decodeHello(wire[:i]); err == nil {
			t.Errorf("the first %d bytes were accepted", i)
		}
	}
	if _, err := decodeHello(append(wire, 0)); !errors.Is(err, errNotHello) {
		t.Errorf("a longer one: got %v, want errNotHello", err)
	}
}

// Each answer means to the dialler what the receiver meant by it.
func TestHello_Answers(t *testing.T) {
	ours := hello{format: 1, cluster: clusterX, node: nodeA, meantTo: nodeB}
	here := NewFactory(Config{Cluster: clusterX, Self: nodeA}).c
	for _, c := range []struct {
		cluster, self string
		admitted      bool
		want, heard   error
	}{
		{clusterX, nodeB, true, nil, nil},
		{clusterY, nodeB, true, ErrForeignCluster, ErrForeignCluster},
		{clusterX, nodeC, true, errWrongNode, errWrongNode},
		{clusterX, nodeB, false, errTwin, errIsTwin},
		{clusterX, nodeC, false, errTwin, errIsTwin},
		{clusterY, nodeB, false, ErrForeignCluster, ErrForeignCluster},
	} {
		there := NewFactory(Config{Cluster: c.cluster, Self: c.self, Boot: Boot{3, 4}, Admit: func(string, Boot) bool { return c.admitted }}).c
		answer, refusal := there.judge(ours)
		if got := here.judged(answer, nodeB); !errors.Is(refusal, c.want) || !errors.Is(got, c.heard) {
			t.Errorf("%+v: receiver %v, dialler %v", c, refusal, got)
		}
	}
	for _, answer := range [][]byte{nil, {0}, {77}} {
		if err := here.judged(answer, nodeB); !errors.Is(err, errRefused) {
			t.Errorf("%v: got %v, want errRefused", answer, err)
		}
	}
	good := Boot{3, 4}.append([]byte{welcome})
	for _, answer := range [][]byte{good[:1], good[:len(good)-1], append(good, 0)} {
		if err := here.judged(answer, nodeB); !errors.Is(err, errNotHello) {
			t.Errorf("%v: got %v, want errNotHello", answer, err)
		}
	}
	here.Admit = func(node string, b Boot) bool { return node != nodeB || b != Boot{3, 4} }
	if err := here.judged(good, nodeB); !errors.Is(err, errTwin) {
		t.Errorf("welcome by another process of the peer: got %v, want errTwin", err)
	}
}

// Too large a message is refused before memory is taken for it.
func TestEncode_TooLarge(t *testing.T) {
	chunk := chunkOf(0, 1, chunkLimit)
	if _, err := encode(nil, frameChunk, &chunk, chunkLimit); !errors.Is(err, transport.ErrFrameTooLarge) {
		t.Errorf("got %v, want ErrFrameTooLarge", err)
	}
}

// A buffer is used again, and one that a rare large frame made is not kept.
func TestEncode_Buffers(t *testing.T) {
	batch := batchOf(nodeA, 1)
	first, err := encode(nil, frameBatch, &batch, batchLimit)
	if err != nil {
		t.Fatal(err)
	}
	second, err := encode(keep(first), frameBatch, &batch, batchLimit)
	if err != nil || &first[0] != &second[0] {
		t.Errorf("got another buffer, %v", err)
	}
	if got := keep(make([]byte, keptBuffer+1)); got != nil {
		t.Errorf("kept %d bytes", cap(got))
	}
}

// No bytes make decodeBatch panic, and whatever it accepts is fit for dragonboat and encodes again.
func FuzzDecodeBatch(f *testing.F) {
	batch := batchOf(nodeA, 1)
	seed, err := batch.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, err := decodeBatch(b, nodeA)
		if err != nil {
			return
		}
		for _, m := range batch.Requests {
			if m.To == 0 || m.From == 0 || m.Type < 0 || m.Type >= pb.LogQuery {
				t.Fatalf("accepted %+v", m)
			}
		}
		if _, err := encode(nil, frameBatch, &batch, batchLimit); err != nil {
			t.Fatal(err)
		}
	})
}

// No bytes make decodeChunk panic, and what it accepts encodes again.
func FuzzDecodeChunk(f *testing.F) {
	chunk := chunkOf(0, 1, 8)
	seed, err := chunk.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		chunk, err := decodeChunk(b)
		if err != nil {
			return
		}
		if _, err := encode(nil, frameChunk, &chunk, chunkLimit); err != nil {
			t.Fatal(err)
		}
	})
}

// No bytes make decodeHello panic, and what it accepts is canonical but for the varint.
func FuzzDecodeHello(f *testing.F) {
	f.Add(hello{format: 1, cluster: clusterX, node: nodeA, meantTo: nodeB}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		again, err := decodeHello(h.append(nil))
		if err != nil || again != h || !bytes.HasSuffix(b, h.append(nil)[2:]) && h.format < 128 {
			t.Fatalf("got %+v, then %+v, %v", h, again, err)
		}
	})
}
