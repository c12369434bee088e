package transporttest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/oarlock/oarlock/transport"
)

// patience bounds what must happen; nothing in the suite waits for it to pass.
const patience = 20 * time.Second

// Run runs the suite. newPair makes two transports that reach each other, on fresh addresses at each call, and need not
// register their Close: the suite closes them. relisten opens a transport at exactly addr.
func Run(t *testing.T, newPair func(t *testing.T) (a, b transport.Transport), relisten func(t *testing.T, addr string) (transport.Transport, error)) {
	for _, c := range Cases(relisten) {
		t.Run(c.Name, func(t *testing.T) {
			a, b := newPair(t)
			defer closeBoth(t, a, b)
			c.Run(t, a, b)
		})
	}
}

// A Case is one property, for callers that set up each case themselves, for example in a bubble of its own. Run gets two
// fresh transports and may close them; the caller closes them again afterwards.
type Case struct {
	Name string
	Run  func(t *testing.T, a, b transport.Transport)
}

// Cases returns the suite as a list. The argument is as in Run.
func Cases(relisten func(t *testing.T, addr string) (transport.Transport, error)) []Case {
	return []Case{
		{"ProtosAreSeparate", protosAreSeparate},
		{"ServerSpeaksFirst", serverSpeaksFirst},
		{"DialRefused", dialRefused},
		{"DialEndsWithContext", dialEndsWithContext},
		{"UnknownProtoIsClosed", unknownProtoIsClosed},
		{"BacklogIsBounded", backlogIsBounded},
		{"BigTransfersBothWays", bigTransfersBothWays},
		{"ManyConnectionsAtOnce", manyConnectionsAtOnce},
		{"DialItself", dialItself},
		{"AcceptEndsWithContext", acceptEndsWithContext},
		{"ReadDeadline", readDeadline},
		{"WriteDeadline", writeDeadline},
		{"PeerCloseGivesEOF", peerCloseGivesEOF},
		{"LocalCloseUnblocks", localCloseUnblocks},
		{"OversizeFrameIsRefused", oversizeFrameIsRefused},
		{"Packets", packets},
		{"PacketTooLarge", packetTooLarge},
		{"SlowPacketReaderBlocksNobody", slowPacketReader},
		{"CloseUnblocksEverything", closeUnblocksEverything},
		{"CloseIsIdempotent", closeIsIdempotent},
		{"AddressFreeAfterClose", func(t *testing.T, a, b transport.Transport) { addressFree(t, a, b, relisten) }},
	}
}

func closeBoth(t *testing.T, a, b transport.Transport) {
	t.Helper()
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// connect dials from a to b and returns both ends.
func connect(t *testing.T, p transport.Proto, a, b transport.Transport) (dialled, accepted net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dialled, err := a.Dial(ctx, p, b.Addr())
	if err != nil {
		t.Fatalf("dial %v: %v", p, err)
	}
	accepted, err = b.Accept(p)
	if err != nil {
		t.Fatalf("accept %v: %v", p, err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	limit := time.Now().Add(patience)
	if err := errors.Join(dialled.SetDeadline(limit), accepted.SetDeadline(limit)); err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

// say writes s at one end and expects it at the other.
func say(t *testing.T, from, to net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(from, s); err != nil {
		t.Fatalf("write %q: %v", s, err)
	}
	got := make([]byte, len(s))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != s {
		t.Fatalf("got %q, %v, want %q", got, err, s)
	}
}

// wantClosed checks that an error says that this side was closed.
func wantClosed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%s after close: got %v, want net.ErrClosed", what, err)
	}
}

// both runs two functions at once and waits for them.
func both(f, g func()) {
	var wg sync.WaitGroup
	wg.Go(f) // stops when f returns; both waits
	wg.Go(g) // stops when g returns; both waits
	wg.Wait()
}
