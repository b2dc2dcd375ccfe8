package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

func TestServerTiming(t *testing.T) {
	ms := func(v float64) int64 { return int64(v * 1e6) }
	for _, c := range []struct {
		name string
		r    schemas.Result
		want string
	}{
		{"nothing", schemas.Result{}, ""},
		{
			"spans",
			schemas.Result{
				Timing: schemas.Timing{TotalNS: ms(30.5), PrefillNS: 9, Spans: []schemas.StageSpan{
					{Stage: "render", From: 0, To: ms(1)},
					{Stage: "queue", From: ms(1), To: ms(2.25)},
					{Stage: "prefill", On: "e0", From: ms(2.25), To: ms(10.25)},
					{Stage: "decode", On: "e1", From: ms(11), To: ms(15)},
					{Stage: "decode", On: "e2", From: ms(20), To: ms(30.0004)},
					{Stage: "unheard of", From: 0, To: 7},
				}},
				Usage: schemas.Usage{Prompt: 2000, Cached: 1984},
				Miss:  &schemas.Miss{Cause: schemas.MissNewText, Message: 4},
			},
			`render;dur=1, queue;dur=1.25, prefill;dur=8, decode;dur=14, total;dur=30.5, cached;desc="1984 of 2000", miss;desc="new_text message 4 byte 0"`,
		},
		{
			"no spans",
			schemas.Result{
				Timing: schemas.Timing{PrefillNS: ms(3), DecodeNS: ms(4)}, Usage: schemas.Usage{Prompt: 7},
				Miss: &schemas.Miss{Cause: schemas.MissEvicted, Message: -1, Rule: "idle \"\\\n\x7fé"},
			},
			`prefill;dur=3, decode;dur=4, cached;desc="0 of 7", miss;desc="evicted by idle _____"`,
		},
	} {
		if got := serverTiming(&c.r); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestTimingIsSent: as a header, or behind a stream.
func TestTimingIsSent(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = hello
	k.scripts["alone"] = func(k *fake, r turns.Ref, _ *schemas.Turn) { k.ok(r, "a", "stop", 1) }
	const want = `cached;desc="7 of 10"`
	a := k.post("/v1/chat/completions", chatBody("hi", ""))
	if a.header.Get(headerTiming) != want || at(a.object(t), "weir", "server_timing") != want {
		t.Errorf("headers %v, body %s", a.header, a.body)
	}
	for _, ask := range []string{"hi", "alone"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.url+"/v1/chat/completions", strings.NewReader(chatBody(ask, `,"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil || res.Header.Get(headerTiming) != "" || res.Trailer.Get(headerTiming) != want {
			t.Errorf("%s: %v, headers %v, trailers %v", ask, err, res.Header, res.Trailer)
		}
	}
}
