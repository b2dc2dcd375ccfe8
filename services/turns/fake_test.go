package turns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// fake plays the part of everything behind the turn path: it publishes frames
// and results as a script says.
type fake struct {
	t   *testing.T
	srv *server.Server
	nc  *nats.Conn
	js  jetstream.JetStream
	ref Ref
	c   *Client
}

// inBubble runs f on a real JetStream in virtual time. nats.go keeps timers in a pool of
// the process, and the runtime ends a process in which one bubble waits for a timer of
// another; two collections empty the pool.
func inBubble(t *testing.T, opts Options, f func(t *testing.T, k *fake)) {
	t.Helper()
	emptyPools := func() { runtime.GC(); runtime.GC() }
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		srv, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topology()})
		if err != nil {
			t.Fatal(err)
		}
		k := &fake{t: t, srv: srv, ref: Ref{Tenant: "default", Session: "s", Turn: "t1"}}
		k.nc = k.connect()
		if k.js, err = jetstream.New(k.nc); err != nil {
			t.Fatal(err)
		}
		if err := jsrun.Provision(t.Context(), k.js, topology()); err != nil {
			t.Fatal(err)
		}
		nc := k.connect()
		if k.c, err = New(nc, opts); err != nil {
			t.Fatal(err)
		}
		// Deferred, because a bubble that is left with goroutines in it hides why
		// a test failed.
		defer func() {
			k.c.Close()
			nc.Close()
			k.nc.Close()
			srv.Shutdown()
			srv.WaitForShutdown()
		}()
		f(t, k)
	})
}

func topology() []streams.Stream {
	return streams.Topology(streams.Options{MaxBytes: map[string]int64{streams.Agent: 4 << 20}})
}

func (k *fake) connect() *nats.Conn {
	k.t.Helper()
	nc, err := jsrun.Connect(jsrun.ConnectOptions{Server: k.srv, Name: "turns-test"})
	if err != nil {
		k.t.Fatal(err)
	}
	return nc
}

// say is the text of a token, so that text and tokens of a script agree.
func say(tok int32) string { return string(rune('a'+tok%26)) + strings.Repeat(".", int(tok%3)) }

func textOf(toks ...int32) string {
	var b strings.Builder
	for _, t := range toks {
		b.WriteString(say(t))
	}
	return b.String()
}

// whole is the answer that scripts deliver in pieces: n tokens.
func whole(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(7*i + 3)
	}
	return out
}

func frameOf(attempt, from, to int) *schemas.Frame {
	w := whole(to)
	return &schemas.Frame{
		Header: schemas.H(), Attempt: attempt, First: from, Tokens: w[from:], Text: textOf(w[from:]...), TextAt: len(textOf(w[:from]...)),
	}
}

func (k *fake) send(subject string, m schemas.Message) {
	k.t.Helper()
	b, err := schemas.Encode(m)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.nc.Publish(subject, b); err != nil {
		k.t.Fatal(err)
	}
}

func (k *fake) frame(attempt, from, to int) {
	k.t.Helper()
	k.send(schemas.OutSubject(k.ref.Tenant, k.ref.Session, k.ref.Turn), frameOf(attempt, from, to))
}

func (k *fake) reject(digest string) {
	k.t.Helper()
	k.send(schemas.OutSubject(k.ref.Tenant, k.ref.Session, k.ref.Turn), &schemas.Frame{
		Header: schemas.H(), Attempt: 1,
		Reject: &schemas.Reject{Digest: digest, Failure: schemas.Failure{Code: schemas.CodeConflict, Message: "used"}},
	})
}

func (k *fake) resultOf(attempt, n int) *schemas.Result {
	w := whole(n)
	return &schemas.Result{
		Header: schemas.H(), Tenant: k.ref.Tenant, Session: k.ref.Session, Turn: k.ref.Turn,
		Job: schemas.JobID(k.ref.Tenant, k.ref.Session, k.ref.Turn), Attempt: attempt, Status: schemas.StatusOK,
		Tokens: w, Text: textOf(w...), Finish: "stop", Usage: schemas.Usage{Prompt: 3, Completion: n},
	}
}

func (k *fake) result(r *schemas.Result) {
	k.t.Helper()
	b, err := schemas.Encode(r)
	if err != nil {
		k.t.Fatal(err)
	}
	_, err = k.js.Publish(k.t.Context(), schemas.ResultSubject(r.Tenant, r.Session, r.Turn), b, jetstream.WithExpectLastSequencePerSubject(0))
	if err != nil {
		k.t.Fatal(err)
	}
}

func request(k *fake, content string) Request {
	msg, err := json.Marshal(map[string]string{"role": "user", "content": content})
	if err != nil {
		k.t.Fatal(err)
	}
	return Request{
		Session: k.ref.Session,
		Turn:    &schemas.Turn{Weir: schemas.TurnMeta{Turn: k.ref.Turn}, Body: schemas.Body{Messages: []json.RawMessage{msg}}},
	}
}

func (k *fake) publish() *Stream {
	k.t.Helper()
	s, err := k.c.Publish(k.t.Context(), request(k, "hello"))
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// reading is what a caller put together.
type reading struct {
	tokens []int32
	text   string
	events int
	result *schemas.Result
	err    error
}

// read follows a stream to its end and checks that indices have no gap.
func (k *fake) read(s *Stream, from Position) reading {
	k.t.Helper()
	var r reading
	at := from
	for {
		e, err := s.Next(k.t.Context())
		if err != nil {
			r.err = err
			return r
		}
		if e.Result != nil {
			r.result = e.Result
			continue
		}
		r.events++
		if e.First != at.Index || e.TextAt != at.TextAt {
			k.t.Fatalf("event at token %d, byte %d; expected %+v", e.First, e.TextAt, at)
		}
		at = e.Position()
		r.tokens = append(r.tokens, e.Tokens...)
		r.text += e.Text
	}
}

// inboundDigest is the digest of what stands in AGENT.
func (k *fake) inboundDigest(seq uint64) string {
	k.t.Helper()
	st, err := k.js.Stream(context.Background(), streams.Agent)
	if err != nil {
		k.t.Fatal(err)
	}
	m, err := st.GetMsg(context.Background(), seq)
	if err != nil {
		k.t.Fatal(err)
	}
	sum := sha256.Sum256(m.Data)
	return hex.EncodeToString(sum[:])
}

// settle waits until everything that is on its way has arrived.
func (k *fake) settle() {
	// Not Flush: its timer comes from a pool that outlives a bubble.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := k.nc.FlushWithContext(ctx); err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // virtual: ends when the whole bubble is idle
	synctest.Wait()
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
