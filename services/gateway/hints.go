package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// nvext is the part of Dynamo's extension of a request that weir takes. Of the hints
// only priority has an effect, the others are checked: lengths are measured.
type nvext struct {
	Hints       agentHints      `json:"agent_hints"`
	Context     agentContext    `json:"agent_context"`
	Annotations json.RawMessage `json:"annotations"`
	ExtraFields json.RawMessage `json:"extra_fields"`
}

type agentHints struct {
	Priority           *int64   `json:"priority"`
	StrictPriority     *int64   `json:"strict_priority"`
	OSL                *int64   `json:"osl"` // expected output tokens
	SpeculativePrefill *bool    `json:"speculative_prefill"`
	LatencySensitivity *float64 `json:"latency_sensitivity"`
}

// agentContext says which session a request belongs to, as the x-dynamo-* headers
// do. Its other fields are for traces.
type agentContext struct {
	Session    string          `json:"session_id"`
	Parent     string          `json:"parent_session_id"`
	Final      bool            `json:"session_final"`
	Compaction json.RawMessage `json:"compaction"`
}

// UnmarshalJSON takes fields that are not known.
func (a *agentContext) UnmarshalJSON(b []byte) error {
	type plain agentContext
	return json.Unmarshal(b, (*plain)(a))
}

// priority is the head start that a client asks for, in seconds: of the header, or of
// the hints. Dynamo has no bound, weir has one.
func (c *clues) priority() int {
	p := int64(0)
	if h := c.ext.Hints.Priority; h != nil {
		p = *h
	}
	if v, err := strconv.ParseInt(c.get("x-dynamo-request-priority"), 10, 64); err == nil {
		p = v
	}
	return int(min(max(p, -schemas.MaxPriority), schemas.MaxPriority))
}

// readNVExt reads the extension. Fields that would change the answer are refused
// by name.
func readNVExt(raw json.RawMessage) (nvext, *apiError) {
	var x nvext
	if !given(raw) {
		return x, nil
	}
	err := turns.DecodeRequest(raw, &x)
	if err == nil {
		return x, nil
	}
	var field *turns.FieldError
	if !errors.As(err, &field) || field.Param == "" {
		return x, invalid("nvext", "nvext must be an object")
	}
	if field.Unknown {
		return x, unknown("nvext." + field.Param)
	}
	return x, invalid("nvext."+field.Param, "nvext: %s", field.Message)
}

// dropCacheControl removes the marks by which clients of other services say where
// a prefix may be cached: blocks are found by content anyway, and a mark that
// moves from turn to turn must change neither the prompt nor the turn's digest.
// Only the places where the mark means that are touched, so an argument or a
// schema of that name stays.
func dropCacheControl(t *schemas.Turn) {
	for i, raw := range t.Messages {
		t.Messages[i] = without(raw, "content")
	}
	for i, raw := range t.Tools {
		t.Tools[i] = without(raw, "function")
	}
}

const cacheControl = "cache_control"

// without drops the member cache_control of an object, of its member named inner,
// and of the elements of that if it is an array. Everything else stays as it is,
// in the same order; what is not understood is returned unchanged.
func without(raw json.RawMessage, inner string) json.RawMessage {
	if !bytes.Contains(raw, []byte(cacheControl)) || !json.Valid(raw) {
		return raw
	}
	switch {
	case len(raw) > 0 && raw[0] == '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return raw
		}
		for i := range list {
			list[i] = without(list[i], "")
		}
		return join('[', list, ']')
	case len(raw) == 0 || raw[0] != '{':
		return raw
	}
	ms, ok := members(raw)
	if !ok {
		return raw
	}
	var kept []json.RawMessage
	for _, m := range ms {
		switch m.name {
		case cacheControl:
			continue
		case inner:
			m.value = without(m.value, "")
		}
		kept = append(kept, append(append(quote(nil, m.name), ':'), m.value...))
	}
	return join('{', kept, '}')
}

type member struct {
	name  string
	value json.RawMessage
}

// members splits an object, in order.
func members(raw json.RawMessage) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		m := member{name: name}
		if d.Decode(&m.value) != nil {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

func join(begin byte, parts []json.RawMessage, end byte) json.RawMessage {
	out := []byte{begin}
	for i, p := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return append(out, end)
}
