package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// A prompt with images is rendered in steps, so that any template will do, also one
// that knows strings only:
//
//	message   an image part becomes a text part, the mark "weir-image-<nonce>-<index>."
//	text      the mark becomes U+10FFFE "image <digest> <tokens>" U+10FFFE; digests of
//	          known text are made from this, so another image is another text
//	tokens    that becomes placeholder tokens
//
// Users cannot write either: the nonce is a hash over all messages, and the
// noncharacter is taken out of all other text.
const imageBound = "\U0010FFFE"

// img is one image of a request.
type img struct {
	digest string // of the content and the options that change what a model sees
	ref    string // object of the payload bucket; "" for one that came inline
	tokens int
	vague  bool // width or height are not known
}

// prompt is rendered text and where its images stand in it.
type prompt struct {
	text  string
	media []placed
}

// placed is an image at text[from:to].
type placed struct {
	from, to int
	img      img
}

// contentPart is what is read of a part of a message's content.
type contentPart struct {
	Type     string          `json:"type"`
	ImageURL json.RawMessage `json:"image_url"`
}

// takeImages puts marks in the place of image parts, and refuses parts that the
// model cannot take.
func (s *source) takeImages() *schemas.Failure {
	parts := map[int][]json.RawMessage{} // by message
	hash := sha256.New()
	marks := map[[2]int]int{} // message and part: index of the image
	for i, raw := range s.messages {
		_, _ = fmt.Fprintf(hash, "%d ", len(raw)) // a hash takes everything
		_, _ = hash.Write(raw)
		ps := partsOf(raw)
		for k, p := range ps {
			im, f := s.part(p, fmt.Sprintf("messages[%d].content[%d]", i, k))
			if f != nil {
				return f
			}
			if im != nil {
				marks[[2]int{i, k}] = len(s.images)
				s.images = append(s.images, *im)
				parts[i] = ps
			}
		}
	}
	if len(s.images) == 0 {
		return nil
	}
	s.nonce = hex.EncodeToString(hash.Sum(nil)[:16])
	out := append([]json.RawMessage(nil), s.messages...)
	for i, ps := range parts {
		for k := range ps {
			if n, ok := marks[[2]int{i, k}]; ok {
				ps[k] = json.RawMessage(`{"type":"text","text":"` + s.mark() + strconv.Itoa(n) + `."}`)
			}
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(s.messages[i], &m); err != nil {
			return invalid(fmt.Sprintf("messages[%d]", i), "message %d is not valid JSON: %s", i, err)
		}
		content, err := json.Marshal(ps)
		if err == nil {
			m["content"] = content
			out[i], err = json.Marshal(m)
		}
		if err != nil {
			return invalid(fmt.Sprintf("messages[%d]", i), "message %d is not valid JSON: %s", i, err)
		}
	}
	s.messages = out
	return nil
}

// partsOf is the content of a message as parts, nil when it is none.
func partsOf(raw json.RawMessage) []json.RawMessage {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) != nil || len(m.Content) == 0 || m.Content[0] != '[' {
		return nil // the template's own checks say more
	}
	var ps []json.RawMessage
	if json.Unmarshal(m.Content, &ps) != nil {
		return nil
	}
	return ps
}

// part checks one part; it returns an image where it is one. at names the part.
func (s *source) part(raw json.RawMessage, at string) (*img, *schemas.Failure) {
	var p contentPart
	if json.Unmarshal(raw, &p) != nil {
		return nil, nil // likewise
	}
	switch p.Type {
	case "text", "refusal", "":
		return nil, nil
	case "image_url":
		if s.model.Vision != nil {
			return s.image(p.ImageURL, at)
		}
		return nil, invalid(at, "model %s takes text only, it cannot take %q parts", s.model.Name, p.Type)
	case "input_audio", "file", "video_url":
		takes := "text only"
		if s.model.Vision != nil {
			takes = "text and images"
		}
		return nil, invalid(at, "model %s takes %s, it cannot take %q parts", s.model.Name, takes, p.Type)
	}
	return nil, invalid(at+".type", "%q is not a kind of content part", p.Type)
}

func (s *source) mark() string { return "weir-image-" + s.nonce + "-" }

// place finds the marks in rendered text and puts the images' identities there.
func (s *source) place(text string) prompt {
	if s.model.Vision == nil {
		return prompt{text: text}
	}
	var p prompt
	var b strings.Builder
	write := func(t string) { b.WriteString(strings.ReplaceAll(t, imageBound, "\uFFFD")) }
	rest := text
	for len(s.images) > 0 {
		before, after, ok := strings.Cut(rest, s.mark())
		if !ok {
			break
		}
		write(before)
		number, behind, ok := strings.Cut(after, ".")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 || n >= len(s.images) { // the template has cut the mark
			write(s.mark())
			rest = after
			continue
		}
		im := s.images[n]
		from := b.Len()
		_, _ = fmt.Fprintf(&b, "%simage %s %d%s", imageBound, im.digest, im.tokens, imageBound)
		p.media = append(p.media, placed{from: from, to: b.Len(), img: im})
		rest = behind
	}
	write(rest)
	p.text = b.String()
	return p
}
