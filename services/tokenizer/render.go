package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/grammar"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// Renderer renders for one model. It may be used by several goroutines.
type Renderer struct {
	model     *model.Model
	template  *chat.Template
	constrain bool // the pool's engine can constrain sampling
	vision    bool
	context   int // tokens per sequence of the executors
	maxPiece  int // bytes of the longest token
}

// New compiles the model's template. context is the number of tokens per sequence
// of the pool's executors: text that cannot fit is refused before it is tokenized.
func New(m *model.Model, context int) (*Renderer, error) {
	t, err := chat.Compile(m.Template)
	if err != nil {
		return nil, err
	}
	r := &Renderer{model: m, template: t, constrain: m.Engine == model.EngineLlama, context: context}
	for id := range m.Vocab.Size() {
		r.maxPiece = max(r.maxPiece, len(m.Vocab.Piece(int32(id), true)))
	}
	return r, nil
}

func invalid(param, format string, args ...any) *schemas.Failure {
	return &schemas.Failure{Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Render answers one request. Failures are in the reply.
func (r *Renderer) Render(req *schemas.RenderRequest) schemas.RenderReply {
	reply := schemas.RenderReply{Header: schemas.H()}
	if reply.Grammar, reply.Failure = r.grammar(req); reply.Failure != nil {
		return reply
	}
	text, special := req.Text, false
	if len(req.Messages) > 0 {
		special = true
		if text, reply.Failure = r.messages(req); reply.Failure != nil {
			return reply
		}
	} else if !utf8.ValidString(text) {
		reply.Failure = invalid("prompt", "the prompt is not valid UTF-8")
		return reply
	}
	reply.Text = text
	rest := text
	for i := len(req.Known) - 1; i >= 0; i-- {
		if k := req.Known[i]; k.Bytes > 0 && k.Bytes <= len(text) && digest(text[:k.Bytes]) == k.Digest {
			reply.Matched, rest = i+1, text[k.Bytes:]
			break
		}
	}
	if n := len(rest) / max(1, r.maxPiece); n >= r.context {
		reply.Failure = &schemas.Failure{
			Code: schemas.CodeTooLong, Param: "messages",
			Message: fmt.Sprintf("this model's context is %d tokens, the prompt has more than %d; shorten it or start with a larger --ctx", r.context, n),
		}
		reply.Text = ""
		return reply
	}
	// A template that writes the BOS token itself must not get a second one.
	bos := !req.Continue && reply.Matched == 0 && (r.model.BOS == "" || !strings.HasPrefix(rest, r.model.BOS))
	toks, err := r.model.Vocab.Tokenize(rest, bos, special)
	if err != nil {
		reply.Failure = &schemas.Failure{Code: schemas.CodeInvalid, Param: "messages", Message: "the text cannot be tokenized: " + err.Error()}
		return reply
	}
	reply.Tokens = toks
	return reply
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (r *Renderer) messages(req *schemas.RenderRequest) (string, *schemas.Failure) {
	for i, raw := range req.Messages {
		if !utf8.Valid(raw) {
			return "", invalid(fmt.Sprintf("messages[%d]", i), "message %d is not valid UTF-8", i)
		}
		if f := r.checkParts(i, raw); f != nil {
			return "", f
		}
	}
	text, err := r.template.Render(chat.Input{
		Messages: req.Messages, Tools: req.Tools, Kwargs: req.Kwargs, AddGenerationPrompt: true,
		BOS: r.model.BOS, EOS: r.model.EOS, Now: time.Unix(0, req.NowNS).UTC(),
	})
	switch {
	case errors.Is(err, chat.ErrMessage):
		return "", invalid("messages", "%s", err)
	case err != nil:
		return "", invalid("messages", "the model's chat template refuses these messages: %s", err)
	}
	return text, nil
}

// checkParts refuses media that the engine cannot take.
func (r *Renderer) checkParts(i int, raw json.RawMessage) *schemas.Failure {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) != nil || len(m.Content) == 0 || m.Content[0] != '[' {
		return nil // the template's own checks say more
	}
	var parts []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return nil
	}
	for k, p := range parts {
		switch p.Type {
		case "text", "refusal", "":
		case "image_url", "input_audio", "file", "video_url":
			if !r.vision {
				return invalid(fmt.Sprintf("messages[%d].content[%d]", i, k), "model %s takes text only, it cannot take %q parts", r.model.Name, p.Type)
			}
		default:
			return invalid(fmt.Sprintf("messages[%d].content[%d].type", i, k), "%q is not a kind of content part", p.Type)
		}
	}
	return nil
}

// grammar turns response_format into GBNF and checks what came as GBNF, before
// any library sees it.
func (r *Renderer) grammar(req *schemas.RenderRequest) (string, *schemas.Failure) {
	if req.Grammar != "" {
		if err := grammar.Check(req.Grammar); err != nil {
			return "", invalid("grammar", "%s", err)
		}
		return r.constrained(req.Grammar, "grammar")
	}
	if len(req.ResponseFormat) == 0 || string(req.ResponseFormat) == "null" {
		return "", nil
	}
	var f struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(req.ResponseFormat, &f); err != nil {
		return "", invalid("response_format", "response_format must be an object with a type")
	}
	switch f.Type {
	case "text":
		return "", nil
	case "json_object":
		return r.constrained(grammar.JSONObject(), "response_format")
	case "json_schema":
		if len(f.JSONSchema.Schema) == 0 {
			return "", invalid("response_format.json_schema.schema", "the schema is missing")
		}
		g, err := grammar.FromSchema(f.JSONSchema.Schema)
		if err != nil {
			return "", invalid("response_format.json_schema.schema", "%s", err)
		}
		return r.constrained(g, "response_format")
	}
	return "", invalid("response_format.type", "%q is not one of text, json_object, json_schema", f.Type)
}

func (r *Renderer) constrained(g, param string) (string, *schemas.Failure) {
	if !r.constrain {
		return "", invalid(param, "the %s engine cannot constrain its answers; use the llama engine", r.model.Engine)
	}
	return g, nil
}
