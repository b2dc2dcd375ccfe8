package erase

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-dev/weir/e2e/stack"
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
	if len(o.Missing) > 0 || o.PagesBefore == 0 {
		t.Errorf("not found before, so the search shows nothing: %v, %d KV pages", o.Missing, o.PagesBefore)
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
