package tokenizer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// Renderer renders for one model. It may be used by several goroutines.
type Renderer struct {
	model     *model.Model
	template  *chat.Template
	constrain bool // the pool's engine can constrain sampling
	context   int  // tokens per sequence of the executors
	maxPiece  int  // bytes of the longest token
	family    family
	takesTool bool   // the template shows tools to the model
	end       ending // how the template ends an answer
}

// New compiles the model's template. context is the number of tokens per sequence
// of the pool's executors: text that cannot fit is refused before it is tokenized.
func New(m *model.Model, context int) (*Renderer, error) {
	t, err := chat.Compile(m.Template)
	if err != nil {
		return nil, err
	}
	r := &Renderer{
		model: m, template: t, constrain: m.Engine == model.EngineLlama, context: context,
		family: familyOf(m.Template), takesTool: toolsName.MatchString(m.Template),
	}
	for id := range m.Vocab.Size() {
		r.maxPiece = max(r.maxPiece, len(m.Vocab.Piece(int32(id), true)))
	}
	r.end = r.learnEnding()
	return r, nil
}

func invalid(param, format string, args ...any) *schemas.Failure {
	return &schemas.Failure{Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

func failed(f *schemas.Failure) schemas.RenderReply {
	return schemas.RenderReply{Header: schemas.H(), Failure: f}
}

// Render answers one request. Failures are in the reply.
func (r *Renderer) Render(req *schemas.RenderRequest) schemas.RenderReply {
	reply := schemas.RenderReply{Header: schemas.H()}
	c, f := r.choice(req)
	if f != nil {
		return failed(f)
	}
	var p prompt
	if len(req.Messages) > 0 {
		s, f := r.source(req, c.tools)
		if f != nil {
			return failed(f)
		}
		if p, f = s.render(s.messages, true); f != nil {
			return failed(f)
		}
		reply.Matched = longest(req.Known, p.text)
		reply.Answered, reply.Rewrite = s.answer(req, p, reply.Matched)
		thinks := opensReasoning(p.text)
		if reply.Grammar, f = r.grammar(req, c, thinks); f != nil {
			return failed(f)
		}
		parsed := c.tools
		if !c.parse {
			parsed = nil
		}
		// A format leaves no room for reasoning, even where the prompt opened it.
		reply.Parse = r.family.spec(parsed, thinks && (reply.Grammar == "" || c.forced), c.one)
	} else {
		if !utf8.ValidString(req.Text) {
			return failed(invalid("prompt", "the prompt is not valid UTF-8"))
		}
		if reply.Grammar, f = r.grammar(req, choice{}, false); f != nil {
			return failed(f)
		}
		p.text = req.Text
		reply.Matched = longest(req.Known, p.text)
	}
	reply.Text = p.text
	from := reply.Answered
	if from == 0 && reply.Matched > 0 {
		from = req.Known[reply.Matched-1].Bytes
	}
	if f := r.tokenize(&reply, p, from, !req.Continue && from == 0, len(req.Messages) > 0); f != nil {
		return failed(f)
	}
	return reply
}

// longest is the index plus 1 of the longest known text that text begins with. The
// text is hashed once, however many there are.
func longest(known []schemas.KnownText, text string) int {
	order := make([]int, 0, len(known))
	for i, k := range known {
		if k.Bytes > 0 && k.Bytes <= len(text) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(known[x].Bytes, known[y].Bytes) })
	hash := sha256.New()
	best, at := 0, 0
	for _, i := range order {
		_, _ = io.WriteString(hash, text[at:known[i].Bytes]) // a hash takes everything
		at = known[i].Bytes
		if hex.EncodeToString(hash.Sum(nil)) == known[i].Digest {
			best = i + 1
		}
	}
	return best
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// tokenize fills in the tokens of the prompt from a byte on, and where its media
// stand in them. bos: the text is the beginning of a sequence. special: control
// tokens may be written as text, as templates do.
func (r *Renderer) tokenize(reply *schemas.RenderReply, p prompt, from int, bos, special bool) *schemas.Failure {
	// Every token has at most maxPiece bytes, so this refuses no prompt that fits.
	least := (len(p.text) - from) / max(1, r.maxPiece)
	for _, m := range p.media {
		if m.from >= from {
			least += m.img.tokens - (m.to-m.from)/max(1, r.maxPiece)
		}
	}
	if least >= r.context {
		return &schemas.Failure{
			Code: schemas.CodeTooLong, Param: "messages",
			Message: fmt.Sprintf("this model's context is %d tokens, the prompt has more than %d; shorten it or start with a larger --ctx", r.context, least),
		}
	}
	// A template that writes the BOS token itself must not get a second one.
	bos = bos && (r.model.BOS == "" || !strings.HasPrefix(p.text[from:], r.model.BOS))
	toks := schemas.Tokens{}
	text := func(s string) error {
		if s == "" && !bos {
			return nil
		}
		more, err := r.pieces(s, bos, special)
		bos = false
		toks = append(toks, more...)
		return err
	}
	var err error
	at := from
	for _, m := range p.media {
		if m.from < from || err != nil {
			continue
		}
		err = text(p.text[at:m.from])
		reply.Media = append(reply.Media, schemas.MediaSpan{Digest: m.img.digest, Offset: len(toks), Length: m.img.tokens, Ref: m.img.ref})
		for range m.img.tokens {
			toks = append(toks, r.model.Vision.Token)
		}
		reply.Uncached = reply.Uncached || m.img.vague
		at = m.to
	}
	if err == nil {
		err = text(p.text[at:])
	}
	if err != nil {
		return invalid("messages", "the text cannot be tokenized: %s", err)
	}
	reply.Tokens = toks
	return nil
}

// pieces turns text into tokens. The text of an image's placeholder stays text:
// only an image makes placeholders.
func (r *Renderer) pieces(s string, bos, special bool) ([]int32, error) {
	v := r.model.Vision
	if v == nil || !special || !strings.Contains(s, v.Text) {
		return r.model.Vocab.Tokenize(s, bos, special)
	}
	var out []int32
	for i, part := range strings.Split(s, v.Text) {
		if i > 0 {
			toks, err := r.model.Vocab.Tokenize(v.Text, false, false)
			if err != nil {
				return nil, err
			}
			out = append(out, toks...)
		}
		toks, err := r.model.Vocab.Tokenize(part, bos && i == 0, special)
		if err != nil {
			return nil, err
		}
		out = append(out, toks...)
	}
	return out, nil
}

// source is what one request renders from.
type source struct {
	*Renderer
	messages []json.RawMessage // images are replaced by marks
	tools    []json.RawMessage
	kwargs   json.RawMessage
	now      time.Time
	images   []img
	nonce    string // of the marks
}

func (r *Renderer) source(req *schemas.RenderRequest, tools []json.RawMessage) (*source, *schemas.Failure) {
	s := &source{Renderer: r, messages: req.Messages, tools: tools, kwargs: req.Kwargs, now: time.Unix(0, req.NowNS).UTC()}
	for i, raw := range req.Messages {
		if !utf8.Valid(raw) {
			return nil, invalid(fmt.Sprintf("messages[%d]", i), "message %d is not valid UTF-8", i)
		}
	}
	return s, s.takeImages()
}

// render renders messages; generate asks for the opening of the answer.
func (s *source) render(messages []json.RawMessage, generate bool) (prompt, *schemas.Failure) {
	text, err := s.template.Render(chat.Input{
		Messages: messages, Tools: s.tools, Kwargs: s.kwargs, AddGenerationPrompt: generate,
		BOS: s.model.BOS, EOS: s.model.EOS, Now: s.now,
	})
	switch {
	case errors.Is(err, chat.ErrWork):
		return prompt{}, &schemas.Failure{Code: schemas.CodeTooLong, Param: "messages", Message: fmt.Sprintf("messages and tools are too long for the model's chat template: %s", err)}
	case errors.Is(err, chat.ErrMessage):
		return prompt{}, invalid(paramOf(err), "%s", wordsOf(err))
	case err != nil:
		return prompt{}, invalid("messages", "the model's chat template refuses these messages: %s", err)
	}
	return s.place(text), nil
}

// wordsOf is the text of an error of package chat without what it wraps.
func wordsOf(err error) string { return strings.TrimPrefix(err.Error(), chat.ErrMessage.Error()+": ") }

// paramOf is the field that an error of package chat begins with.
func paramOf(err error) string {
	param, _, _ := strings.Cut(wordsOf(err), "[")
	param, _, _ = strings.Cut(param, " ")
	param, _, _ = strings.Cut(param, ".")
	switch param {
	case "tools", "chat_template_kwargs":
		return param
	}
	return "messages"
}
