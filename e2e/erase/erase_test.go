package erase

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// TestErase: after an erase no word of the session is in a store, in a file, or in KV
// memory, and the other session has lost nothing.
func TestErase(t *testing.T) {
	o, err := Try(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("erased in %s: %+v", o.Took, o.Report)
	t.Logf("%d KV pages before, and %s", o.PagesBefore, strings.Join(o.Before, "\n"))
	if len(o.Missing) > 0 || o.PagesBefore == 0 || o.PagesOnDisk == 0 {
		t.Errorf("not found before, so the search shows nothing: %v, %d KV pages, %d of them on disk", o.Missing, o.PagesBefore, o.PagesOnDisk)
	}
	if len(o.Found) > 0 || o.PagesAfter > 0 {
		t.Errorf("found after: %v, %d KV pages", o.Found, o.PagesAfter)
	}
	if len(o.Lost) > 0 {
		t.Errorf("the other session lost: %v", o.Lost)
	}
	r := o.Report
	if !r.Found || r.Blocks == 0 || r.Objects != 2 || r.Messages[streams.Agent] < 6 || r.Messages[streams.Result] < 5 || r.Messages[streams.Dead] == 0 {
		t.Errorf("report %+v", r)
	}
	if a := o.Again; a.Found || a.Blocks > 0 || len(a.Messages) > 0 {
		t.Errorf("the second erase found %+v", a)
	}
}

// TestDeleteCommand: the command as a person runs it.
func TestDeleteCommand(t *testing.T) {
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null"}})
	weir := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), stack.Build(t), append(args, "--nats", s.Ready.NATS)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := weir("turn", "Hello", "--session", "s1", "--turn", "t1", "--max-tokens", "8"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := weir("session", "show", "s1"); err != nil || !strings.Contains(out, "main") {
		t.Errorf("show: %v: %s", err, out)
	}
	out, err := weir("session", "delete", "s1", "-o", "json")
	var r struct {
		Found    bool           `json:"found"`
		Messages map[string]int `json:"messages"`
	}
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || !r.Found || r.Messages["AGENT"] != 1 || r.Messages["RESULT"] != 1 {
		t.Errorf("delete: %v: %s", err, out)
	}
	if out, err := weir("session", "show", "s1"); err == nil || !strings.Contains(out, "not known") {
		t.Errorf("show after delete: %v: %s", err, out)
	}
	if out, err := weir("session", "delete", "s1"); err != nil || !strings.Contains(out, "not known") {
		t.Errorf("the second delete: %v: %s", err, out)
	}
	if out, err := weir("session", "delete", "a.b"); err == nil || !strings.Contains(out, "SESSION") {
		t.Errorf("a bad id: %v: %s", err, out)
	}
}

// TestDeleteOverHTTP: turns in work are a conflict; afterwards the session is gone, and
// a turn of that name begins a new one.
func TestDeleteOverHTTP(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	c := s.NewClient(t)
	call := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.Ready.HTTP+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for life := range 2 {
		turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: "long", IgnoreEOS: true}, Body: schemas.Body{Prompt: json.RawMessage(`"go on and on"`)}}
		st, err := c.Publish(ctx, turns.Request{Session: "s1", Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Next(ctx); err != nil {
			t.Fatal(err)
		}
		// The turn generates tokens for seconds and is cancelled below.
		if code, body := call(http.MethodDelete, "/v1/sessions/s1"); code != http.StatusConflict || !strings.Contains(body, "in work") {
			t.Errorf("life %d: with a turn in work: %d %s", life, code, body)
		}
		if err := st.Cancel(ctx, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := turns.Collect(ctx, st, nil); err != nil {
			t.Fatal(err)
		}
		st.Close()
		if code, body := call(http.MethodDelete, "/v1/sessions/s1"); code != http.StatusOK || !strings.Contains(body, `"found":true`) {
			t.Errorf("life %d: %d %s", life, code, body)
		}
		if code, _ := call(http.MethodGet, "/v1/sessions/s1"); code != http.StatusNotFound {
			t.Errorf("life %d: after the erase the session answers %d", life, code)
		}
	}
}

// TestRetain: chosen times are given to streams that exist, and stay without a choice.
func TestRetain(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []struct {
		args      []string
		dead, out time.Duration
	}{
		{nil, 7 * 24 * time.Hour, 10 * time.Minute},
		{[]string{"--retain", "DEAD=30d,OUT=5m", "--retain", "SESSION=7d"}, 30 * 24 * time.Hour, 5 * time.Minute},
		{nil, 30 * 24 * time.Hour, 10 * time.Minute}, // OUT is in memory and made anew
	} {
		s, err := stack.Launch(t.Context(), stack.Options{Dir: dir, Args: append([]string{"--engine", "null"}, f.args...)})
		if err != nil {
			t.Fatal(err)
		}
		nc, err := s.Connect("e2e-retain")
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]time.Duration{streams.Dead: f.dead, streams.Out: f.out} {
			if st, err := js.Stream(t.Context(), name); err != nil || st.CachedInfo().Config.MaxAge != want {
				t.Errorf("%v: %s is kept for %s, want %s, %v", f.args, name, st.CachedInfo().Config.MaxAge, want, err)
			}
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// noise does not shrink.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestScanner: a word is found however it is packed.
func TestScanner(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte("before " + wordMessage + " after")
	packed := enc.EncodeAll(plain, nil)
	b64 := func(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) }
	for name, b := range map[string][]byte{
		"plain":                    plain,
		"zstd":                     packed,
		"zstd in garbage":          slices.Concat([]byte("xx(\xb5/"), packed, []byte("garbage")),
		"base64":                   slices.Concat([]byte(`{"b":"`), b64(plain), []byte(`"}`)),
		"base64, shifted by one":   b64(append([]byte("y"), plain...)),
		"base64, shifted by two":   b64(append([]byte("yy"), plain...)),
		"base64 of zstd, padded":   slices.Concat([]byte(`"`), b64(enc.EncodeAll(append(bytes.Clone(plain), noise(1)...), nil)), []byte(`"`)),
		"base64 of zstd, padded 2": slices.Concat([]byte(`"`), b64(enc.EncodeAll(append(bytes.Clone(plain), noise(2)...), nil)), []byte(`"`)),
		"base64 of zstd":           slices.Concat([]byte(`{"state":"`), b64(packed), []byte(`"}`)),
		"zstd of base64 of zstd":   enc.EncodeAll(slices.Concat([]byte(`"`), b64(packed), []byte(`"`)), nil),
		"two frames, second has":   slices.Concat(enc.EncodeAll([]byte("nothing"), nil), packed),
		"zstd, cut short":          enc.EncodeAll(append(bytes.Clone(plain), noise(300<<10)...), nil)[:200<<10],
	} {
		s := newScanner([]string{wordMessage, wordOther})
		s.look("x", b, 0)
		if !s.in(wordMessage, "x") || s.in(wordOther, "x") {
			t.Errorf("%s: found %v", name, s.finds())
		}
	}
}
