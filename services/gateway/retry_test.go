package gateway

import (
	"testing"

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
