package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/weir-dev/weir/schemas"
)

// nameRenderer stands for the tokenizer service. It is a fake: it reads which blocks a
// message names and gives their tokens. Roles and ends of messages are text without
// tokens, so that prompts have the recorded number of tokens.
//
// A replay through it cannot show what real templates and tokenizers do to a cache:
// text that is tokenized otherwise when it comes back, white space or JSON written
// anew, and templates that move tools or dates. It shows reasoning that the template
// drops, since the load says how much there is.
type nameRenderer struct {
	text  []byte
	names []place // of the messages' names in text
	ps    []piece
}

// place is a name in the text.
type place struct{ from, to int }

var (
	contentKey = []byte(`"content":"`)
	roleKey    = []byte(`"role":"`)
)

// field is what stands behind key, up to the first space or quote.
func field(raw, key []byte) []byte {
	i := bytes.Index(raw, key)
	if i < 0 {
		return nil
	}
	raw = raw[i+len(key):]
	if k := bytes.IndexAny(raw, ` "`); k >= 0 {
		return raw[:k]
	}
	return nil
}

// render writes <role>name| for each message and the head of the next answer, and
// tokenizes what stands behind the longest text that is known.
func (r *nameRenderer) render(q *schemas.RenderRequest) schemas.RenderReply {
	r.text, r.names = r.text[:0], r.names[:0]
	for _, raw := range q.Messages {
		r.text = append(append(append(r.text, '<'), field(raw, roleKey)...), '>')
		from := len(r.text)
		r.text = append(r.text, field(raw, contentKey)...)
		r.names = append(r.names, place{from, len(r.text)})
		r.text = append(r.text, '|')
	}
	r.text = append(r.text, "<assistant>"...)
	reply := schemas.RenderReply{Header: schemas.H(), Text: string(r.text), Parse: "replay"}
	from := 0
	for i := len(q.Known) - 1; i >= 0; i-- {
		if k := q.Known[i]; k.Bytes <= len(r.text) && digest(r.text[:k.Bytes]) == k.Digest {
			reply.Matched, from = i+1, k.Bytes
			break
		}
	}
	if a := q.Answer; a != nil && reply.Matched == a.Known {
		reply.Rewrite = schemas.RewriteReasoning
	}
	for _, n := range r.names {
		if n.from < from || n.from == n.to {
			continue
		}
		session, ps, err := parseName(r.text[n.from:n.to], r.ps[:0])
		if err != nil {
			return schemas.RenderReply{Header: schemas.H(), Failure: &schemas.Failure{Code: schemas.CodeInvalid, Message: err.Error(), Param: "messages"}}
		}
		r.ps = ps
		reply.Tokens = appendTokens(reply.Tokens, session, ps)
	}
	return reply
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
