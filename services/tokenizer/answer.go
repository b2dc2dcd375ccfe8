package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-dev/weir/schemas"
)

// An answer that comes back as a message is written by the template, not as it was
// generated. Where the prompt holds all of it, its tokens can stay:
//
//	known prompt      the answer, by the template   ending         the rest
//	…assistant\n   |  I will look.\n<tool_call>…  | <|im_end|>\n | <|im_start|>tool …
//	               p                              e
//	tokens kept:      as they were generated, with the end token
//
// e is not found by looking for the ending in the text, which may hold it, but by
// rendering once more with another following message: what differs lies behind it.

// ending is the text by which a template ends every answer.
type ending struct {
	text  string
	known bool
}

// Probes: no template cuts or changes these, and none writes them.
const (
	probeAnswer = "weirA7 answer"
	probeNext   = "weirN9 next"
)

// learnEnding renders conversations and looks at what follows the answer. Without
// a stable text, answers that come back are tokenized like all other text.
func (r *Renderer) learnEnding() ending {
	system, user := `{"role":"system","content":"be brief"}`, `{"role":"user","content":"ask"}`
	answer, next := `{"role":"assistant","content":"`+probeAnswer+`"}`, `{"role":"user","content":"`+probeNext+`"}`
	var found []string
	for _, probe := range [][]string{{user, answer}, {system, user, answer}, {user, answer, user, answer}} {
		s := &source{Renderer: r}
		p, f := s.render(raws(probe), false)
		if f != nil {
			if len(probe) == 3 {
				continue // some templates take no system message
			}
			return ending{}
		}
		at := strings.LastIndex(p.text, probeAnswer)
		if at < 0 {
			return ending{}
		}
		found = append(found, p.text[at+len(probeAnswer):])
	}
	for _, text := range found {
		if text != found[0] {
			return ending{}
		}
	}
	// The end of an answer in the middle must be the same, and be found.
	r.end = ending{text: found[0], known: true}
	s := &source{Renderer: r, messages: raws([]string{user, answer, next})}
	p, f := s.render(s.messages, true)
	if f != nil {
		return ending{}
	}
	at := strings.Index(p.text, probeAnswer)
	if at < 0 {
		return ending{}
	}
	if e := s.endOf(1, at, p); e != at+len(probeAnswer) {
		return ending{}
	}
	return r.end
}

func raws(texts []string) []json.RawMessage {
	out := make([]json.RawMessage, len(texts))
	for i, t := range texts {
		out[i] = json.RawMessage(t)
	}
	return out
}

// answer finds the request's answer in the prompt. at is the byte up to which the
// prompt is covered by the answer's tokens, 0 when they cannot be used; cause says
// why not, or how the template's text differs from what was generated.
func (s *source) answer(req *schemas.RenderRequest, p prompt, matched int) (at int, cause schemas.RewriteCause) {
	a := req.Answer
	if a == nil || a.At < 1 || a.At >= len(s.messages) || a.Known < 1 || a.Known > len(req.Known) || matched > a.Known {
		return 0, ""
	}
	known := req.Known[a.Known-1]
	if matched < a.Known || known.Bytes > len(p.text) || digest(p.text[:known.Bytes]) != known.Digest {
		return 0, s.promptChanged(a.At, known, p)
	}
	if !s.end.known {
		return 0, schemas.RewriteText
	}
	end := s.endOf(a.At, known.Bytes, p)
	if end < 0 {
		// The answer is written otherwise when other messages follow.
		if s.reasoned(a.Text, p.text[:known.Bytes]) && !s.reasoned(p.text[known.Bytes:], p.text[:known.Bytes]) {
			return 0, schemas.RewriteReasoning
		}
		return 0, schemas.RewriteText
	}
	cause = s.family.rewritten(a.Text, p.text[known.Bytes:end], opensReasoning(p.text[:known.Bytes]))
	switch {
	case cause == schemas.RewriteReasoning: // the template wants it gone
		return 0, cause
	case !strings.HasPrefix(p.text[end:], a.End):
		// Another end token than the template writes: the answer's tokens are of use
		// without it.
		return end, cause
	}
	return end + len(a.End), cause
}

// endOf is where the text of answer i ends in p, before the ending; -1 when that
// cannot be told. The answer begins at from.
func (s *source) endOf(i, from int, p prompt) int {
	if s.end.text == "" {
		// The answer ends where the prompt would without what follows.
		q, f := s.render(s.messages[:i+1], false)
		if f != nil || len(q.text) < from || !strings.HasPrefix(p.text, q.text) {
			return -1
		}
		return len(q.text)
	}
	until := len(p.text)
	if i+1 < len(s.messages) {
		other, ok := withContent(s.messages[i+1])
		if !ok {
			return -1
		}
		changed := slices.Clone(s.messages)
		changed[i+1] = other
		q, f := s.render(changed, true)
		if f != nil || q.text == p.text {
			return -1
		}
		until = common(p.text, q.text)
	}
	if until < from {
		return -1
	}
	end := strings.LastIndex(p.text[from:until], s.end.text)
	if end < 0 {
		return -1
	}
	return from + end
}

// withContent is a message with a content that no other message has.
func withContent(raw json.RawMessage) (json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	m["content"] = json.RawMessage(`"\uE0B7 other content"`)
	out, err := json.Marshal(m)
	return out, err == nil
}

// common is the length of the prefix that two texts share.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// promptChanged tells why the prompt that an answer was given to does not begin
// this one. Where it would not even render as it did, the cause is elsewhere: other
// messages, tools or options.
func (s *source) promptChanged(i int, known schemas.KnownText, p prompt) schemas.RewriteCause {
	old, f := s.render(s.messages[:i], true)
	if f != nil || len(old.text) != known.Bytes || digest(old.text) != known.Digest {
		return ""
	}
	at := common(old.text, p.text)
	for _, tag := range openTags {
		if strings.Contains(old.text[max(0, at-len(tag)-2):min(len(old.text), at+len(tag)+2)], tag) {
			return schemas.RewriteReasoning
		}
	}
	return schemas.RewriteText
}

// reasoned tells whether a text that follows a prompt holds reasoning.
func (s *source) reasoned(text, prompt string) bool {
	return squeeze(s.family.parse(text, opensReasoning(prompt)).Reasoning) != ""
}

// rewritten compares an answer as generated with what a template makes of it. The
// worst difference counts.
func (f family) rewritten(generated, rendered string, thinks bool) schemas.RewriteCause {
	if generated == rendered {
		return ""
	}
	g, r := f.parse(generated, thinks), f.parse(rendered, thinks)
	was, is := squeeze(g.Reasoning), squeeze(r.Reasoning)
	switch {
	case was != "" && is == "":
		return schemas.RewriteReasoning
	case was != is || squeeze(g.Content) != squeeze(r.Content):
		return schemas.RewriteText
	case squeeze(generated) != squeeze(rendered):
		return schemas.RewriteCalls
	}
	return schemas.RewriteSpace
}

// squeeze takes white space out of a text.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}
