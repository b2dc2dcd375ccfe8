package replay

import (
	"encoding/json"
	"strconv"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// message is one message of a context.
type message struct {
	raw json.RawMessage
	end int32 // tokens of the context up to its end
}

// talk is what the agents of a load send: the messages of each line of context.
type talk struct {
	*script
	at    map[[2]int32][]message // of the lines' contexts, answers included
	saved map[int][]message      // of the calls that another line begins with
}

func newTalk(x *script) *talk {
	return &talk{script: x, at: map[[2]int32][]message{}, saved: map[int][]message{}}
}

// bytesPerToken is how long the text of a token is. The inference of branches knows
// compactions by their bytes, so messages are as long as real ones.
const bytesPerToken = 4

// bare is a message without text: the JSON around it.
func bare(head string, session int32, ps []piece) json.RawMessage {
	n := int32(0)
	for _, p := range ps {
		n += p.n
	}
	b := append(make([]byte, 0, len(head)+64+bytesPerToken*int(n)), head...)
	from := len(b)
	if n > 0 {
		b = appendName(b, session, ps)
	}
	b = append(b, ' ')
	for len(b)-from < bytesPerToken*int(n) {
		b = append(b, '.')
	}
	return append(b, `"}`...)
}

// prompt is what call i sends: the messages of the context that it repeats, of which
// it has kept, and new ones behind them.
func (t *talk) prompt(i int) (all []message, kept int, whole bool) {
	st := &t.steps[i]
	var old []message
	switch {
	case st.prev >= 0:
		old = t.at[[2]int32{st.Session, st.Line}]
	case st.base >= 0:
		old = t.saved[st.base]
	}
	from := int32(0)
	if len(old) > 0 {
		shared := int32(workload.Common(t.steps[st.base].context, st.prompt))
		for kept < len(old) && ceil(old[kept].end) <= shared && old[kept].end <= st.In {
			kept++
		}
		if whole = kept == len(old); kept > 0 {
			from = old[kept-1].end
		}
	}
	all = append(old[:kept:kept], t.parts(i, from, whole)...)
	return all, kept, whole
}

// parts are new messages for the tokens of prompt i from token from on: cut where a
// later prompt parts from this one, and where a session's own blocks begin behind
// global ones. The first one of a context is its system prompt. Behind a whole context
// whose last answer called a tool, the first one is what the tool returned.
func (t *talk) parts(i int, from int32, whole bool) (out []message) {
	st := &t.steps[i]
	add := func(to int32) {
		head := `{"role":"user","content":"`
		switch {
		case from == 0:
			head = `{"role":"system","content":"`
		case whole && len(out) == 0 && t.steps[st.base].Finish == workload.FinishTools:
			head = `{"role":"tool","tool_call_id":"` + callID(st.base) + `","content":"`
		}
		out = append(out, message{raw: bare(head, st.Session, span(nil, st.prompt, from, to)), end: to})
		from = to
	}
	at, global := int32(0), false
	for _, r := range st.prompt {
		if at > from && global && r.From < workload.Global && at < st.In {
			add(at)
		}
		global = r.From >= workload.Global
		for k := max(0, (from-at)/blockTokens); k < r.N; k++ {
			if end := at + (k+1)*blockTokens; end > from && end < st.In && t.cuts[st.Session][r.From+k] {
				add(end)
			}
		}
		at += r.N * blockTokens
	}
	if from < st.In {
		add(st.In)
	}
	return out
}

// answer is the message that call i was answered with, its text as it was generated,
// and the tokens.
func (t *talk) answer(i int) (raw json.RawMessage, text string, tokens schemas.Tokens) {
	st := &t.steps[i]
	said := span(nil, st.context, st.In, st.In+st.visible)
	var think []piece
	head := `{"role":"assistant",`
	if n := st.Out - st.visible; n > 0 {
		think = []piece{{id: st.think.From, n: n}}
		name := string(appendName(nil, st.Session, think))
		head += `"reasoning_content":"` + name + `",`
		text = "~" + name + "~"
	}
	if st.Finish == workload.FinishTools {
		tool := st.Tool
		if tool == "" {
			tool = "tool"
		}
		head += `"tool_calls":[{"id":"` + callID(i) + `","type":"function","function":{"name":` + quoted(tool) + `,"arguments":"{}"}}],`
	}
	tokens = make(schemas.Tokens, 0, st.Out)
	tokens = appendTokens(appendTokens(tokens, st.Session, think), st.Session, said)
	if st.visible > 0 {
		text += string(appendName(nil, st.Session, said))
	}
	return bare(head+`"content":"`, st.Session, said), text, tokens
}

// answered keeps the context of call i for the next one of its line.
func (t *talk) answered(i int, all []message, raw json.RawMessage) {
	st := &t.steps[i]
	line := [2]int32{st.Session, st.Line}
	all = append(all[:len(all):len(all)], message{raw: raw, end: st.In + st.visible})
	if t.kept[i] {
		t.saved[i] = all
	}
	if t.at[line] = all; st.last {
		delete(t.at, line)
	}
}

func callID(i int) string { return "c" + strconv.Itoa(i) }

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}
