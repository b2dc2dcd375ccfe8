package gateway

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestFirstPiece: the stream begins with the first token, also when nothing of it can
// be shown yet. Clients measure the time to the first token by that.
func TestFirstPiece(t *testing.T) {
	k := newFake(t, Options{})
	read := make(chan struct{})
	rest := parsed("hermes+tools", calls, len(calls))
	k.scripts["hi"] = func(k *fake, r turns.Ref, turn *schemas.Turn) {
		k.publish(schemas.OutSubject(r.Tenant, r.Session, r.Turn), &schemas.Frame{
			Header: schemas.H(), Attempt: 1, Tokens: schemas.Tokens{0}, Text: calls[:12], Parse: "hermes+tools",
		})
		go func() {
			select {
			case <-read:
				rest(k, r, turn)
			case <-t.Context().Done():
			}
		}()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.url+"/v1/chat/completions", strings.NewReader(chatBody("hi", `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"delta":{"role":"assistant","content":null`) {
		t.Fatalf("the first piece is %q, %v", lines.Text(), lines.Err())
	}
	close(read)
	got := ""
	for lines.Scan() {
		got += lines.Text()
	}
	if strings.Count(got, `"role"`) != 0 || strings.Count(got, `"name":"get_weather"`) != 2 || !strings.HasSuffix(got, "[DONE]") {
		t.Errorf("the rest of the stream is %s", got)
	}
}
