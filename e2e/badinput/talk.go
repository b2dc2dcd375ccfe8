package badinput

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// object stores bytes in the payload bucket under a digest, as a caller who lies.
func (b *Bus) object(ctx context.Context, digest string, content []byte) error {
	bucket, err := b.JS.ObjectStore(ctx, streams.PayloadBucket)
	if err != nil {
		return err
	}
	_, err = bucket.PutBytes(ctx, digest, content)
	return err
}

// References are turns whose body is said to be in the payload bucket.
func References(ctx context.Context, b *Bus) ([]Input, error) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	digest := func(p []byte) string {
		sum := sha256.Sum256(p)
		return hex.EncodeToString(sum[:])
	}
	good := []byte(`{"messages":[{"role":"user","content":"hello"}],"max_tokens":2}`)
	bomb := bytes.Repeat([]byte{'0'}, 4*schemas.MaxBody)
	nested := []byte(`{"body_ref":{"digest":"` + strings.Repeat("1", 64) + `","bytes":9}}`)
	other := strings.Repeat("c", 64)
	var errs []error
	put := func(name string, content []byte) string {
		errs = append(errs, b.object(ctx, name, content))
		return name
	}
	ref := func(digest string, n int64) func() []byte {
		return fixed(fmt.Sprintf(`{"weir":{},"body_ref":{"digest":%q,"bytes":%d}}`, digest, n))
	}
	small := int64(len(good))
	ins := []Input{
		{Name: "a good body", Body: ref(put(digest(good), enc.EncodeAll(good, nil)), small), Code: Answered},
		{Name: "a body that is not there", Body: ref(strings.Repeat("0", 64), 100), Says: "not in the bucket"},
		{Name: "a body that is longer than said", Body: ref(digest(good), small-1), Says: "expected"},
		{Name: "a body that is shorter than said", Body: ref(digest(good), small+1), Says: "expected"},
		{Name: "a body of another digest", Body: ref(put(other, enc.EncodeAll(good, nil)), small), Says: "digest"},
		{Name: "a body that is not compressed", Body: ref(put(strings.Repeat("d", 64), good), small), Says: strings.Repeat("d", 64)},
		{Name: "a bomb that says its size", Body: ref(put(digest(bomb), enc.EncodeAll(bomb, nil)), int64(len(bomb))), Says: "body_ref", Dead: true},
		{Name: "a bomb that says it is small", Body: ref(digest(bomb), 100), Says: digest(bomb)},
		{Name: "a body that refers to another", Body: ref(put(digest(nested), enc.EncodeAll(nested, nil)), int64(len(nested))), Says: "refers to another"},
		{Name: "a short digest", Body: ref("abc", 100), Says: "64 hex digits", Dead: true},
		{Name: "a digest that is a path", Body: ref("../"+strings.Repeat("x", 61), 100), Says: "not in the bucket"},
		{Name: "a negative size", Body: ref(digest(good), -1), Says: "bytes", Dead: true},
		{Name: "no size", Body: ref(digest(good), 0), Says: "bytes", Dead: true},
	}
	for i := range ins {
		ins[i].Path = "-"
		if ins[i].Code == "" {
			ins[i].Code = invalid
		}
	}
	return ins, errors.Join(errs...)
}

// Subjects publishes on subjects that are none of weir's, and checks that each is
// refused by the server or ends in a dead letter.
func Subjects(ctx context.Context, b *Bus) []error {
	var errs []error
	body := chat("")()
	long := strings.Repeat("a", 65)
	for _, c := range []struct {
		subject string
		dead    bool // stored, and then a dead letter; otherwise nothing takes it
		says    string
	}{
		{"agent.default." + long + ".turn", true, "65 characters"},
		{"agent." + long + ".s.turn", true, "65 characters"},
		{"agent.default.a$b.turn", true, "a$b"},
		{"agent.default.sch\u00f6n.turn", true, "sch"},
		{"agent.default.s.shout", true, "shout"},
		{"agent.default.s.TURN", true, "TURN"},
		{"agent.default.s.turn.x", false, ""},
		{"agent.7.default.s.turn", false, ""},
		{"agent.99.default.s.turn", false, ""},
		{"agent.default.s", false, ""},
		{"agent", false, ""},
		{"agents.default.s.turn", false, ""},
	} {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		ack, err := b.JS.Publish(try, c.subject, body, jetstream.WithRetryAttempts(0))
		switch {
		case !c.dead && err == nil:
			errs = append(errs, fmt.Errorf("%s is stored as %s %d", c.subject, ack.Stream, ack.Sequence))
		case c.dead && err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", c.subject, err))
		case c.dead:
			d, err := b.Dead(try, ack.Sequence)
			if err != nil || !strings.Contains(d.Reason, c.says) {
				errs = append(errs, fmt.Errorf("%s: dead letter %q, want %q: %w", c.subject, d.Reason, c.says, err))
			}
		}
		cancel()
	}
	return append(errs, wild(ctx, b)...)
}

// wild publishes on subjects with wildcards and holes, which clients refuse, by
// speaking the protocol past them.
func wild(ctx context.Context, b *Bus) []error {
	var errs []error
	for _, subject := range [...]string{"agent.default.*.turn", "agent.default.>.turn", "agent.default..turn", "agent..s.turn", "agent.default. s.turn"} {
		err := b.NC.Publish(subject, []byte("{}"))
		if err == nil {
			err = b.NC.FlushWithContext(ctx)
		}
		if err != nil && !errors.Is(err, nats.ErrBadSubject) {
			errs = append(errs, fmt.Errorf("%q: %w", subject, err))
		}
	}
	return errs
}

// Events publishes what agents may say about what nobody knows. None is answered,
// and a body that cannot be read ends in a dead letter.
func Events(ctx context.Context, b *Bus) []error {
	var errs []error
	for _, c := range []struct {
		kind schemas.EventKind
		body string
		dead string // what the dead letter says, "" for none
	}{
		{schemas.EventCancel, `{"v":1,"turn":"nobody"}`, ""},
		{schemas.EventCancel, `{"v":1}`, ""},
		{schemas.EventToolWait, `{"v":1,"branch":"nobody","tool":"make","expected_ns":9223372036854775807}`, ""},
		{schemas.EventSessionEnd, `{"v":1}`, ""},
		{schemas.EventBranchFork, `{"v":1,"branch":"b","parent":"nobody"}`, ""},
		{schemas.EventCompacted, `{"v":1,"branch":"nobody"}`, ""},
		{schemas.EventCancel, `{"turn":"t"}`, "version 0"},
		{schemas.EventCancel, `{"v":1,"turn":"a b"}`, "turn is"},
		{schemas.EventToolWait, `{"v":1,"expected_ns":-1}`, "expected_ns"},
		{schemas.EventToolWait, `{"v":1,"tool":"` + strings.Repeat("x", 300) + `"}`, "tool"},
		{schemas.EventUserWait, "", "EOF"},
		{schemas.EventUserWait, "\xff", "UTF-8"},
		{schemas.EventUserWait, `[]`, "array"},
	} {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		ack, err := b.JS.Publish(try, schemas.AgentSubject(schemas.DefaultTenant, NewSession(), c.kind), []byte(c.body))
		if err == nil && c.dead != "" {
			var d schemas.Dead
			if d, err = b.Dead(try, ack.Sequence); err == nil && !strings.Contains(d.Reason, c.dead) {
				err = fmt.Errorf("dead letter %q, want %q", d.Reason, c.dead)
			}
		}
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %.80s: %w", c.kind, c.body, err))
		}
	}
	return errs
}

// Cancelled publishes many cancels of turns that nobody knows in a session with a
// turn that runs, and checks that it is answered.
func Cancelled(ctx context.Context, b *Bus) error {
	session := NewSession()
	results, err := b.Results(session)
	if err != nil {
		return err
	}
	defer func() { _ = results.Unsubscribe() }() // the connection ends soon
	say := func(kind schemas.EventKind, body []byte) {
		_, e := b.JS.Publish(ctx, schemas.AgentSubject(schemas.DefaultTenant, session, kind), body)
		err = errors.Join(err, e)
	}
	say(schemas.EventTurn, chat(`,"weir":{"turn":"t1"}`)())
	for i := range 20 {
		say(schemas.EventCancel, fmt.Appendf(nil, `{"v":1,"turn":"x%d"}`, i))
	}
	say(schemas.EventToolWait, []byte(`{"v":1,"branch":"nobody"}`))
	if err != nil {
		return err
	}
	r, err := NextResult(ctx, results)
	if err == nil && r.Failure != nil {
		err = fmt.Errorf("the turn failed: %+v", *r.Failure)
	}
	return err
}

// Reused publishes a turn, then its id again with other content, with content that
// cannot be read, and with the same content; over NATS and over HTTP. Only callers
// with other content may hear of it.
func Reused(ctx context.Context, s *stack.Stack, b *Bus) error {
	session := NewSession()
	subject := schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn)
	out, err := b.NC.SubscribeSync(schemas.OutSubject(schemas.DefaultTenant, session, "t1"))
	if err != nil {
		return err
	}
	results, err := b.Results(session)
	if err != nil {
		return err
	}
	first := tokens(50, 400)
	first = append([]byte(`{"weir":{"turn":"t1",`), bytes.TrimPrefix(first, []byte(`{"weir":{`))...)
	other := chat(`,"weir":{"turn":"t1"}`)()
	broken := []byte(`{"weir":{"turn":"t1"},"temperature":"hot"}`)
	for _, body := range [...][]byte{first, other, broken, first} {
		if _, err := b.JS.Publish(ctx, subject, body); err != nil {
			return err
		}
	}
	r, err := NextResult(ctx, results)
	if err != nil {
		return err
	}
	if r.Failure != nil || len(r.Tokens) != 400 {
		return fmt.Errorf("the first turn was disturbed: %d tokens, %+v", len(r.Tokens), r.Failure)
	}
	rejected := map[string]bool{}
	for len(rejected) < 2 {
		m, err := out.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("%d of 2 callers with other content heard of it: %w", len(rejected), err)
		}
		var f schemas.Frame
		if err := schemas.Decode(m.Data, &f); err != nil {
			return err
		}
		if f.Reject != nil {
			rejected[f.Reject.Digest] = true
			if f.Reject.Failure.Code != schemas.CodeConflict {
				return fmt.Errorf("rejected with %+v", f.Reject.Failure)
			}
		}
	}
	for _, body := range [...][]byte{other, broken} {
		sum := sha256.Sum256(body)
		if !rejected[hex.EncodeToString(sum[:])] {
			return fmt.Errorf("nobody told the caller of %.60s", body)
		}
	}
	if m, err := results.NextMsg(300 * time.Millisecond); err == nil {
		return fmt.Errorf("a second result came: %.200s", m.Data)
	}
	return reusedHTTP(ctx, s)
}

// reusedHTTP does the same through the gateway, with an idempotency key.
func reusedHTTP(ctx context.Context, s *stack.Stack) error {
	session, key := NewSession(), []string{"Idempotency-Key", "once"}
	headers := append([]string{"X-Weir-Session", session}, key...)
	content := func(o Outcome) string {
		var c struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		}
		if json.Unmarshal([]byte(o.Text), &c) != nil {
			return o.Text
		}
		return c.Message.Content
	}
	one, _ := postHeaders(ctx, s.Ready.HTTP, "", chat(`,"seed":1`)(), headers...)
	two, _ := postHeaders(ctx, s.Ready.HTTP, "", chat(`,"seed":2`)(), headers...)
	again, _ := postHeaders(ctx, s.Ready.HTTP, "", chat(`,"seed":1`)(), headers...)
	if one.Code != Answered || again.Code != Answered || content(one) != content(again) {
		return fmt.Errorf("the same request twice: %+v, then %+v", one, again)
	}
	if two.Code != schemas.CodeConflict || two.Status != 422 || !strings.Contains(two.Text, "other content") {
		return fmt.Errorf("the same key with another request: %+v", two)
	}
	return nil
}
