package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestRetryAfter: a client of either API hears when room is expected, in whole seconds
// and never sooner than that.
func TestRetryAfter(t *testing.T) {
	k := newFake(t, Options{})
	retry := int64(0)
	k.scripts["hi"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.failed(r, schemas.Failure{Code: schemas.CodeBusy, Message: "no room", RetryNS: retry})
	}
	for ns, want := range map[int64]string{0: "1", 1: "1", 41_000_000_001: "42", 42_000_000_000: "42"} {
		retry = ns
		for path, kind := range map[string]string{"/v1/chat/completions": "rate_limit_error", "/v1/messages": "rate_limit_error"} {
			a := k.post(path, `{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]}`)
			if a.status != 429 || a.header.Get("Retry-After") != want || at(a.object(t), "error", "type") != kind || a.header.Get("X-Should-Retry") != "" {
				t.Errorf("%s, %d ns: %d %s, Retry-After %q, want %s", path, ns, a.status, a.body, a.header.Get("Retry-After"), want)
			}
		}
	}
}

// TestRetryInStream: a stream that has begun while the turn waited has no header left for
// the time, so that the error names it; one that has not begun is refused as a whole.
func TestRetryInStream(t *testing.T) {
	for _, c := range []struct{ path, body, code string }{
		{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`, `"code":"overloaded","retry_after":42`},
		{"/v1/messages", `{"model":"m","stream":true,"max_tokens":8,"messages":[{"role":"user","content":"hi"}]}`, `"type":"rate_limit_error","message":"no room","retry_after":42`},
		{"/v1/responses", `{"model":"m","stream":true,"input":"hi"}`, `"code":"rate_limit_exceeded","message":"no room","retry_after":42`},
	} {
		for _, begun := range []bool{true, false} {
			o := Options{}
			if begun {
				o.KeepAlive = 10 * time.Millisecond
			}
			k := newFake(t, o)
			k.scripts["hi"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
				refuse := func() {
					k.failed(r, schemas.Failure{Code: schemas.CodeBusy, Message: "no room", RetryNS: 41_000_000_001})
				}
				if begun {
					time.AfterFunc(100*time.Millisecond, refuse)
				} else {
					refuse()
				}
			}
			a := k.post(c.path, c.body)
			if begun && (a.status != 200 || !strings.Contains(a.body, c.code)) {
				t.Errorf("%s: %d %s, want %s", c.path, a.status, a.body, c.code)
			}
			if !begun && (a.status != 429 || a.header.Get("Retry-After") != "42" || !strings.Contains(a.body, `"retry_after":42`)) {
				t.Errorf("%s: %d %s, Retry-After %q", c.path, a.status, a.body, a.header.Get("Retry-After"))
			}
		}
	}
}
