package media

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// blockTokens is the number of tokens in a KV block.
const blockTokens = 64

// layout says where the images of a prompt stand in its tokens.
type layout struct {
	spans []schemas.MediaSpan
}

// render asks the tokenizer where the images of messages stand. Images travel as
// references there.
func render(ctx context.Context, nc *nats.Conn, model string, messages []object, shots [][]byte) (*layout, error) {
	raw, err := withRefs(messages, shots)
	if err != nil {
		return nil, err
	}
	r, err := stack.Render(ctx, nc, model, &schemas.RenderRequest{Header: schemas.H(), Messages: raw})
	if err != nil {
		return nil, err
	}
	if len(r.Media) != len(shots) {
		return nil, fmt.Errorf("the prompt has %d images of %d", len(r.Media), len(shots))
	}
	return &layout{spans: r.Media}, nil
}

// withRefs encodes messages with a reference in the place of each image.
func withRefs(messages []object, shots [][]byte) (out []json.RawMessage, err error) {
	next := 0
	for _, m := range messages {
		if parts, ok := m["content"].([]object); ok {
			var refs []object
			for _, p := range parts {
				if image, ok := p["image_url"].(object); ok {
					ref := turns.MediaRef{Digest: hexSum(shots[next]), Type: "image/png", Width: shotWidth, Height: shotHeight, Bytes: int64(len(shots[next]))}
					next++
					p = object{"type": "image_url", "image_url": object{"url": ref.String(), "detail": image["detail"]}}
				}
				refs = append(refs, p)
			}
			m = say(m["role"].(string), refs) // made by say
		}
		b, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// pair is two prompts of equal text in two sessions. The second one may find, of what
// the first one left, all up to the image that differs, and nothing behind it.
type pair struct {
	name          string
	first, second []look // the images of one message
}

// look is an image as it is sent.
type look struct {
	seed   uint64
	detail string
}

func pairs() []pair {
	a, b, c := look{1001, "high"}, look{1002, "high"}, look{1003, "high"}
	low := look{1001, "low"}
	out := []pair{
		{"same image", []look{a}, []look{a}},
		{"other image", []look{a}, []look{b}},
		{"other detail", []look{a}, []look{low}},
		{"same two", []look{a, b}, []look{a, b}},
		{"other second", []look{a, b}, []look{a, c}},
		{"other first", []look{a, c}, []look{b, c}},
		{"swapped", []look{a, b}, []look{b, a}},
	}
	for i := range uint64(12) {
		out = append(out, pair{fmt.Sprintf("others %d", i), []look{{2000 + i, "auto"}}, []look{{3000 + i, "auto"}}})
	}
	return out
}

// outcome of a pair.
type outcome struct {
	pair   pair
	cached int // tokens that the second prompt found
	most   int // that it may find
	least  int // that it must find: an equal prefix is found again
}

// crossed: the second prompt took a block that holds another image.
func (o *outcome) crossed() bool { return o.cached > o.most }

// found: it took what it may.
func (o *outcome) found() bool { return o.cached >= o.least }

// try sends both prompts of a pair and compares what the second one found with where
// the images stand.
func (p pair) try(ctx context.Context, nc *nats.Conn, url, model string) (*outcome, error) {
	// Text that no other pair has, long enough for a block of its own before the image.
	intro := strings.Repeat(fmt.Sprintf("Pair %s: look closely at what follows. ", p.name), 12)
	prompt := func(looks []look) (messages []object, shots [][]byte) {
		parts := []object{text(intro)}
		for _, l := range looks {
			b := shot(l.seed)
			shots = append(shots, b)
			parts = append(parts, picture(b, l.detail), text(intro))
		}
		return []object{say("user", parts)}, shots
	}
	m1, _ := prompt(p.first)
	if _, err := post(ctx, url, "first-"+id(p.name), m1); err != nil {
		return nil, err
	}
	m2, shots := prompt(p.second)
	a, err := post(ctx, url, "second-"+id(p.name), m2)
	if err != nil {
		return nil, err
	}
	l, err := render(ctx, nc, model, m2, shots)
	if err != nil {
		return nil, err
	}
	o := &outcome{pair: p, cached: a.Usage.Details.Cached, most: a.Usage.Prompt}
	for i := range p.second {
		if p.first[i] != p.second[i] {
			o.most = l.spans[i].Offset
			break
		}
	}
	// The last token of a prompt is computed in any case, so its block may be too.
	o.least = min(o.most, a.Usage.Prompt-1) / blockTokens * blockTokens
	return o, nil
}

func id(name string) string { return strings.ReplaceAll(name, " ", "-") }
