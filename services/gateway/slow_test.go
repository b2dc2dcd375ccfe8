package gateway

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestSlowClient: a client that does not read its stream is cut off and its turn
// cancelled; others are served meanwhile.
func TestSlowClient(t *testing.T) {
	k := newFake(t, Options{WriteTimeout: 200 * time.Millisecond})
	k.scripts["hi"] = hello
	piece := strings.Repeat("x", 256<<10)
	k.scripts["flood"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		for i := range 80 { // 20 MiB, more than the sockets take
			k.frame(r, i, i*len(piece), piece, int32(i))
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(k.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := chatBody("flood", `,"stream":true`)
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	within(t, k.refs)
	for range 5 {
		if a := k.post("/v1/chat/completions", chatBody("hi", "")); a.status != 200 {
			t.Errorf("beside a slow client: %d %s", a.status, a.body)
		}
	}
	if e := within(t, k.events); e.Turn == "" {
		t.Errorf("the cancel is %+v", e)
	}
}

// TestStoppedInTheHeader: a client that never ends its header does not stay.
func TestStoppedInTheHeader(t *testing.T) {
	k := newFake(t, Options{})
	if d := k.g.srv.ReadHeaderTimeout; d <= 0 || d > 30*time.Second {
		t.Errorf("the header may take %s", d)
	}
	if k.g.srv.MaxHeaderBytes > 1<<20 {
		t.Errorf("headers may have %d bytes", k.g.srv.MaxHeaderBytes)
	}
}

// TestSlowBody: a body that stops arriving ends with an error after BodyTimeout.
func TestSlowBody(t *testing.T) {
	k := newFake(t, Options{BodyTimeout: 100 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(k.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 400") && !strings.HasPrefix(string(b), "HTTP/1.1 408") {
		t.Errorf("answer %q", b)
	}
	if n := k.g.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies stay charged", n)
	}
}
