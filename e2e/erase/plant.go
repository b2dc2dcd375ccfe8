package erase

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// The words of the session that is erased, and of the one that stays. None is part of
// another, and no other text has them.
const (
	wordMessage = "QuailMessageCanary"
	wordAnswer  = "QuailAnswerCanary"
	wordTool    = "QuailToolCanary"
	wordReason  = "QuailReasonCanary"
	wordDead    = "QuailDeadLetterCanary"
	wordBody    = "QuailLargeBodyCanary"
	wordImage   = "QuailImageCanary"
	wordOther   = "HeronOtherCanary"
)

// wantBefore are the stores in which each word must be found before the erase; a scan
// that does not find it there would show nothing afterwards.
var wantBefore = map[string][]string{
	wordMessage: {streams.Agent, streams.Snap},
	wordAnswer:  {streams.Result, streams.Snap},
	wordTool:    {streams.Agent},
	wordReason:  {streams.Agent},
	wordDead:    {streams.Agent, streams.Dead},
	wordBody:    {streams.PayloadStream},
	wordImage:   {streams.PayloadStream},
	wordOther:   {streams.Agent, streams.Result, streams.Snap},
}

// planter says the words.
type planter struct {
	c     *turns.Client
	js    jetstream.JetStream
	model string
}

// forced turns a text into the tokens of an answer.
func (p *planter) forced(ctx context.Context, text string) (schemas.Tokens, error) {
	return stack.Tokens(ctx, p.c.Conn(), p.model, text)
}

// needle is how the middle of a list of tokens stands in messages.
func needle(t schemas.Tokens) string {
	var s []string
	for _, tok := range t[1 : len(t)-1] {
		s = append(s, strconv.Itoa(int(tok)))
	}
	return strings.Join(s, ",")
}

// turn publishes a turn and waits for its end.
func (p *planter) turn(ctx context.Context, session string, t *schemas.Turn) (*schemas.Result, error) {
	s, err := p.c.Publish(ctx, turns.Request{Session: session, Turn: t})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return turns.Collect(ctx, s, nil)
}

// session lets a session answer, in two turns, a text that has the word.
func (p *planter) session(ctx context.Context, id, word string, answer schemas.Tokens) error {
	var messages []json.RawMessage
	for i := range 2 {
		say, err := json.Marshal(map[string]string{"role": "user", "content": strings.Repeat(fmt.Sprintf("%s says part %d. ", word, i), 40)})
		if err != nil {
			return err
		}
		messages = append(messages, say)
		r, err := p.turn(ctx, id, &schemas.Turn{
			Weir: schemas.TurnMeta{Turn: fmt.Sprintf("t%d", i), ForceOutput: answer}, Body: schemas.Body{Messages: messages},
		})
		if err != nil {
			return err
		}
		if r.Status != schemas.StatusOK {
			return fmt.Errorf("turn %d of %s: %+v", i, id, r.Failure)
		}
		back, err := json.Marshal(map[string]string{"role": "assistant", "content": r.Text})
		if err != nil {
			return err
		}
		messages = append(messages, back)
	}
	return nil
}

// rest lets the session leave its other traces.
func (p *planter) rest(ctx context.Context, session string) error {
	one := int64(1)
	user := func(content any) []json.RawMessage {
		b, _ := json.Marshal(map[string]any{"role": "user", "content": content}) // strings and maps of strings
		return []json.RawMessage{b}
	}
	tool, err := json.Marshal(map[string]any{"type": "function", "function": map[string]any{"name": "f", "description": wordTool, "parameters": map[string]any{"type": "object"}}})
	if err != nil {
		return err
	}
	large := strings.Repeat(wordBody+" ", 300<<10/len(wordBody))
	for _, t := range []schemas.Turn{
		{Weir: schemas.TurnMeta{Turn: "tool"}, Body: schemas.Body{Messages: user("hello"), Tools: []json.RawMessage{tool}, MaxTokens: &one}},
		{Weir: schemas.TurnMeta{Turn: "large", Branch: "b"}, Body: schemas.Body{Messages: user("short"), Metadata: json.RawMessage(strconv.Quote(large)), MaxTokens: &one}},
		// A model without vision refuses it; the image is stored all the same.
		{Weir: schemas.TurnMeta{Turn: "image", Branch: "i"}, Body: schemas.Body{Messages: user([]any{
			map[string]any{"type": "image_url", "image_url": map[string]string{"url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(taggedPNG(wordImage))}},
		}), MaxTokens: &one}},
	} {
		if _, err := p.turn(ctx, session, &t); err != nil {
			return fmt.Errorf("turn %s: %w", t.Weir.Turn, err)
		}
	}
	if _, err := p.c.Event(ctx, turns.EventRequest{Session: session, Kind: schemas.EventUserWait, Reason: wordReason}); err != nil {
		return err
	}
	_, err = p.js.Publish(ctx, schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn), []byte(`{"messages": `+wordDead))
	return err
}

// taggedPNG is an image with a word in a text chunk.
func taggedPNG(word string) []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))) // a buffer takes everything
	chunk := append([]byte("tEXtComment\x00"), word...)
	head := binary.BigEndian.AppendUint32(nil, uint32(len(chunk)-4))
	tail := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(chunk))
	const ihdrEnd = 8 + 25 // signature and header chunk
	all := b.Bytes()
	return bytes.Join([][]byte{all[:ihdrEnd], head, chunk, tail, all[ihdrEnd:]}, nil)
}
