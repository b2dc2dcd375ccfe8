package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestRefuse: what no dialect reads is refused in the shape that the client knows,
// with what to do.
func TestRefuse(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["gone"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.failed(r, schemas.Failure{Code: schemas.CodeModel, Message: "no such model", Param: "model"})
	}
	k.g.fleet.heard(&schemas.Heartbeat{Header: schemas.H(), Executor: "e0", Pool: "tiny", Role: schemas.RoleMixed}, time.Now())
	version := []string{"Anthropic-Version", "2023-06-01"}
	for name, c := range map[string]struct {
		method, path string
		header       []string
		status       int
		anthropic    string // the error's type there, or empty for OpenAI's shape
		says         string
	}{
		"path":                {"POST", "/v1/nothing", nil, 404, "", "/v1/nothing"},
		"path, by version":    {"POST", "/v1/v1/messages", version, 404, "not_found_error", "/v1/v1/messages"},
		"batches":             {"POST", "/v1/messages/batches", nil, 404, "not_found_error", "/v1/messages/batches"},
		"method":              {"GET", "/v1/responses", nil, 405, "", "POST"},
		"method of messages":  {"GET", "/v1/messages", nil, 405, "invalid_request_error", "POST"},
		"model":               {"GET", "/v1/models/gone", nil, 404, "", `served are "tiny"`},
		"model, by version":   {"GET", "/v1/models/gone", version, 404, "not_found_error", `served are "tiny"`},
		"model of a turn":     {"POST", "/v1/chat/completions", nil, 404, "", `served are "tiny"`},
		"gzip":                {"POST", "/v1/chat/completions", []string{"Content-Encoding", "gzip"}, 415, "", "gzip"},
		"zstd, messages":      {"POST", "/v1/messages", []string{"Content-Encoding", "zstd"}, 415, "invalid_request_error", "zstd"},
		"an identity is none": {"POST", "/v1/chat/completions", []string{"Content-Encoding", "identity"}, 404, "", `served are "tiny"`},
	} {
		t.Run(name, func(t *testing.T) {
			a := k.do(c.method, c.path, strings.NewReader(chatBody("gone", "")), c.header...)
			m := a.object(t)
			text, _ := at(m, "error", "message").(string)
			if a.status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("%d %s", a.status, a.body)
			}
			if kind := at(m, "error", "type"); c.anthropic != "" && (at(m, "type") != "error" || kind != c.anthropic) {
				t.Errorf("not Anthropic's shape: %s", a.body)
			}
			if c.anthropic == "" && at(m, "type") != nil {
				t.Errorf("not OpenAI's shape: %s", a.body)
			}
		})
	}
	if a := k.do(http.MethodGet, "/v1/models/tiny", nil); a.status != 200 {
		t.Errorf("a model that is served: %d %s", a.status, a.body)
	}
}
