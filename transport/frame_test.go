package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is written is read back, frame by frame, in one reused buffer, and the end between frames is a clean io.EOF.
func TestReadFrame_RoundTrip(t *testing.T) {
	payloads := [][]byte{{}, []byte("a"), bytes.Repeat([]byte("xy"), 1<<20), []byte("last")}
	var stream bytes.Buffer
	for _, p := range payloads {
		if err := WriteFrame(&stream, p, 8<<20); err != nil {
			t.Fatal(err)
		}
	}
	var buf []byte
	for i, want := range payloads {
		var err error
		if buf, err = ReadFrame(&stream, buf, 8<<20); err != nil {
			t.Fatalf("frame %d: got error %v", i, err)
		}
		if !bytes.Equal(buf, want) {
			t.Fatalf("frame %d: got %d bytes, want %d", i, len(buf), len(want))
		}
	}
	if _, err := ReadFrame(&stream, buf, 8<<20); err != io.EOF {
		t.Fatalf("behind the last frame: got %v, want io.EOF", err)
	}
}

// The bound holds exactly: limit bytes pass and limit+1 are refused, by writer and reader, and nothing goes out.
func TestWriteFrame_Limit(t *testing.T) {
	for _, n := range []int{99, 100, 101} {
		var stream bytes.Buffer
		err := WriteFrame(&stream, make([]byte, n), 100)
		if got, want := errors.Is(err, ErrFrameTooLarge), n > 100; got != want {
			t.Errorf("write of %d bytes, limit 100: got %v", n, err)
		}
		if err != nil && stream.Len() > 0 {
			t.Errorf("a refused frame wrote %d bytes", stream.Len())
		}
		stream.Reset()
		if err := WriteFrame(&stream, make([]byte, n), 1000); err != nil {
			t.Fatal(err)
		}
		_, err = ReadFrame(&stream, nil, 100)
		if got, want := errors.Is(err, ErrFrameTooLarge), n > 100; got != want {
			t.Errorf("read of %d bytes, limit 100: got %v", n, err)
		}
	}
}

// A false length below the bound costs no more memory than arrives, in steps (case 145).
func TestReadFrame_FalseLengthAllocatesLittle(t *testing.T) {
	head := binary.LittleEndian.AppendUint32(nil, 1<<30)
	head = append(head, 1, 2, 3, 4, 5)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadFrame(bytes.NewReader(head), nil, 1<<31-1)
	runtime.ReadMemStats(&after)
	if err != io.ErrUnexpectedEOF {
		t.Fatalf("got %v, want io.ErrUnexpectedEOF", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Fatalf("a length of 1 GiB with one byte behind it allocated %d bytes", got)
	}
}

// Any single flipped bit is found: the frame is refused, or its length no longer fits.
func TestReadFrame_BitFlips(t *testing.T) {
	good, err := AppendFrame(nil, []byte("the quick brown fox"), 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		got, err := ReadFrame(bytes.NewReader(bad), nil, 1<<20)
		if !errors.Is(err, ErrFrameCorrupt) && !errors.Is(err, ErrFrameTooLarge) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("bit %d flipped: got %q, %v", i, got, err)
		}
	}
	if _, err := ReadFrame(bytes.NewReader(make([]byte, 64)), nil, 100); !errors.Is(err, ErrFrameCorrupt) {
		t.Fatalf("a stream of zeros: got %v, want ErrFrameCorrupt", err)
	}
}

// Frames built in place are the same bytes as frames that were copied.
func TestEndFrame_SameAsAppend(t *testing.T) {
	want, _ := AppendFrame([]byte("before"), []byte("payload"), 100)
	got := append(BeginFrame([]byte("before")), "payload"...)
	if err := EndFrame(got, len("before"), 100); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// Whatever the bytes, ReadFrame neither panics nor returns more than its limit, and what it accepts encodes to what
// it read (case 145).
func FuzzReadFrame(f *testing.F) {
	good, _ := AppendFrame(nil, []byte("payload"), 100)
	f.Add(good)
	f.Add(make([]byte, 40))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 1 << 12
		r := bytes.NewReader(in)
		got, err := ReadFrame(r, nil, limit)
		if err != nil {
			return
		}
		if len(got) > limit {
			t.Fatalf("got %d bytes, limit %d", len(got), limit)
		}
		again, err := AppendFrame(nil, got, limit)
		if err != nil || !bytes.Equal(again, in[:len(in)-r.Len()]) {
			t.Fatalf("accepted %x, which encodes to %x (%v)", in, again, err)
		}
	})
}
