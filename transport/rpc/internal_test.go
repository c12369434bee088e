package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oarlock/oarlock/transport"
	"github.com/oarlock/oarlock/transport/memnet"
)

// What a frame of each kind says is what was put in.
func TestMessage_RoundTrip(t *testing.T) {
	for _, want := range []message{
		{kind: kindPing, body: []byte{}},
		{kind: kindRequest, id: 1 << 60, code: 65535, timeout: time.Hour, body: []byte("body")},
		{kind: kindRequest, id: 1, body: []byte{}},
		{kind: kindResponse, id: 2, body: []byte("answer")},
		{kind: kindError, id: 3, code: 9, body: []byte("text")},
		{kind: kindCancel, id: 4, body: []byte{}},
	} {
		b, err := appendMessage([]byte("before"), &want, 100)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := transport.ReadFrame(bytes.NewReader(b[len("before"):]), nil, maxPayload(100))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(message{})); diff != "" {
			t.Error(diff)
		}
	}
}

// The longest body of each kind fits the frame that the reader accepts; one byte more is refused and changes nothing.
func TestMessage_Limits(t *testing.T) {
	for _, maxBody := range []int{1, 100, 1 << 20} {
		for _, k := range []kind{kindRequest, kindResponse} {
			m := message{kind: k, body: make([]byte, maxBody)}
			b, err := appendMessage(nil, &m, maxBody)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transport.ReadFrame(bytes.NewReader(b), nil, maxPayload(maxBody)); err != nil {
				t.Errorf("kind %d, %d bytes: the reader refuses it: %v", k, maxBody, err)
			}
			m.body = make([]byte, maxBody+1)
			before := []byte("before")
			b, err = appendMessage(before, &m, maxBody)
			if !errors.Is(err, transport.ErrFrameTooLarge) || string(b) != "before" {
				t.Errorf("kind %d, %d bytes, at most %d: got %q, %v", k, maxBody+1, maxBody, b, err)
			}
		}
	}
}

// A frame that was taken back becomes a ping, those around it stay, and the stream stays in step.
func TestOutbox_Retract(t *testing.T) {
	o := newOutbox(100)
	put := func(id uint64) ticket {
		at, full, err := o.put(&message{kind: kindRequest, id: id, body: fmt.Append(nil, "body ", id)}, false)
		if full != nil || err != nil {
			t.Fatal(full, err)
		}
		return at
	}
	gone := put(1)
	if got := len(o.take(nil)); got == 0 {
		t.Fatal("nothing to take")
	}
	var at []ticket
	for id := range uint64(3) {
		at = append(at, put(10+id))
	}
	if o.retract(gone) {
		t.Error("a frame that the writer has taken was taken back")
	}
	if !o.retract(at[1]) {
		t.Error("a frame that is still here was not taken back")
	}
	r := bytes.NewReader(o.take(nil))
	var got []kind
	for {
		b, err := transport.ReadFrame(r, nil, maxPayload(100))
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		m, err := parseMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.kind)
	}
	if diff := cmp.Diff([]kind{kindRequest, kindPing, kindRequest}, got); diff != "" {
		t.Error(diff)
	}
	last := put(20)
	o.fail(io.EOF)
	if !o.retract(last) || o.retract(at[2]) {
		t.Error("after the end: what was not taken never leaves, what was taken may have")
	}
}

// A full outbox makes senders wait until the writer has taken what is there, or the outbox has failed; what must go in
// goes in.
func TestOutbox_Full(t *testing.T) {
	o := newOutbox(highWater)
	m := &message{kind: kindRequest, body: make([]byte, highWater)}
	if _, full, err := o.put(m, false); full != nil || err != nil {
		t.Fatal(full, err)
	}
	_, full, err := o.put(m, false)
	if full == nil || err != nil {
		t.Fatalf("got %v, %v, want to wait", full, err)
	}
	if _, full, err := o.put(&message{kind: kindCancel}, true); full != nil || err != nil {
		t.Fatalf("what must go in: got %v, %v", full, err)
	}
	o.take(nil)
	<-full
	if _, full, err = o.put(m, false); full != nil || err != nil {
		t.Fatal(full, err)
	}
	_, full, _ = o.put(m, false)
	o.fail(io.EOF)
	<-full
	if _, _, err := o.put(m, false); err != io.EOF {
		t.Errorf("got %v, want the reason of the failure", err)
	}
}

// Whatever a peer sends, the parser neither panics nor reads outside, and what it accepts encodes to the same bytes
// (case 145).
func FuzzParseMessage(f *testing.F) {
	for _, m := range []message{
		{kind: kindPing}, {kind: kindRequest, id: 1, code: 2, timeout: 3, body: []byte("body")},
		{kind: kindResponse, id: 1}, {kind: kindError, code: 1, body: []byte("text")}, {kind: kindCancel, id: 9},
	} {
		b, err := appendMessage(nil, &m, 100)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[transport.FrameHeader:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := parseMessage(in)
		if err != nil {
			if !errors.Is(err, errProtocol) {
				t.Fatalf("got %v, want a violation", err)
			}
			return
		}
		again, err := appendMessage(nil, &m, max(len(in), maxText))
		if err != nil {
			if len(in) > maxText {
				return // a long error text is accepted, not sent
			}
			t.Fatal(err)
		}
		if !bytes.Equal(again[transport.FrameHeader:], in) {
			t.Fatalf("accepted %x, which encodes to %x", in, again)
		}
	})
}

// Whatever bytes arrive on a connection, server and client break it or go on, and still serve others (case 145).
func FuzzServer(f *testing.F) {
	good, _ := appendMessage(nil, &message{kind: kindRequest, id: 1, body: []byte("x")}, 100)
	f.Add(good)
	f.Add(append(good, good...))
	f.Add(append(good, 1, 2, 3, 4, 5, 6, 7, 8))
	n := memnet.New(memnet.Options{})
	at, err := n.Listen("10.0.0.1:1")
	if err != nil {
		f.Fatal(err)
	}
	s := Serve(at, func(context.Context, Request) ([]byte, error) { return nil, nil }, &Options{MaxBody: 1 << 10})
	f.Cleanup(func() { s.Close(); at.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		from, err := n.Listen("10.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		nc, err := from.Dial(t.Context(), transport.RPC, at.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(in); err != nil && !errors.Is(err, io.EOF) {
			t.Log(err) // the server may be faster
		}
		nc.Close()
		c := NewClient(from, nil)
		defer c.Close()
		if _, err := c.Call(t.Context(), at.Addr(), 1, nil); err != nil {
			t.Fatal(err)
		}
	})
}
