package tokenize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/tokenizer"
)

// Two megabytes of tools are rendered by a tokenizer in another process, or refused
// with context_length_exceeded; either way within seconds.
func TestLargeTools(t *testing.T) {
	server, err := stack.LaunchNATS(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	nc, err := nats.Connect(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for name, context := range map[string]int{"large": 1 << 22, "small": 32768} {
		serve(t, nc, name, context)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name, model string
		word        func() string
		code        string // of the failure
	}{
		{"words", "large", func() string { return "word " }, ""},
		{"words in a small context", "small", func() string { return "word " }, schemas.CodeTooLong},
		{"noise", "large", func() string { return fmt.Sprintf("%x ", rnd.Uint64()) }, schemas.CodeTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := &schemas.RenderRequest{Header: schemas.H(), Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q"}`)}}
			for bytes := 0; bytes < 2<<20; bytes += len(req.Tools[len(req.Tools)-1]) {
				var text strings.Builder
				for text.Len() < 1000 {
					text.WriteString(c.word())
				}
				req.Tools = append(req.Tools, json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":"tool_%d","description":"%s"}}`, len(req.Tools), text.String())))
			}
			start := time.Now()
			reply := ask(t, nc, c.model, req)
			t.Logf("%d tools: %v, %d tokens", len(req.Tools), time.Since(start), len(reply.Tokens))
			switch f := reply.Failure; {
			case c.code == "" && (f != nil || len(reply.Text) < 2<<20 || len(reply.Tokens) < 2<<20):
				t.Errorf("failure %+v, %d bytes, %d tokens", f, len(reply.Text), len(reply.Tokens))
			case c.code != "" && (f == nil || f.Code != c.code):
				t.Errorf("failure %+v, want %s", f, c.code)
			}
		})
	}
}

// serve runs a tokenizer of a null engine until the test ends.
func serve(t *testing.T, nc *nats.Conn, name string, size int) {
	t.Helper()
	r, err := tokenizer.New(&model.Model{Name: name, Engine: model.EngineNull, Template: chat.Fallback, Vocab: nullengine.Vocab{}}, size)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tokenizer.Serve(ctx, nc, r, "0.0.0", nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// ask repeats until the service has started. What does not fit a message is refused
// as the control process does it.
func ask(t *testing.T, nc *nats.Conn, name string, req *schemas.RenderRequest) *schemas.RenderReply {
	t.Helper()
	body, err := tokenizer.Pack(req)
	if errors.Is(err, schemas.ErrTooLarge) {
		return &schemas.RenderReply{Failure: &schemas.Failure{Code: schemas.CodeTooLong}}
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		m, err := nc.RequestWithContext(ctx, tokenizer.Subject(name), body)
		if errors.Is(err, nats.ErrNoResponders) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var reply schemas.RenderReply
		if err := tokenizer.Unpack(m.Data, &reply); err != nil {
			t.Fatal(err)
		}
		return &reply
	}
}
