package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/tokenizer"
)

// chatMessage is a message as a client keeps it.
type chatMessage struct {
	Role      string     `json:"role"`
	Content   any        `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
	Answers   string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// spliceRig is lineage with the real renderer, and agents that send their histories
// again. A token of an answer is its byte plus generatedToken, so that what is spliced
// shows; the end of an answer is one token.
type spliceRig struct {
	*rapid.T
	l        *lineage.Lineage
	r        *tokenizer.Renderer
	template string
	end      string
	tools    []json.RawMessage
	now      schemas.Time
	seq      uint64
	ready    map[string]*schemas.Ready // by tenant, session and turn
	failed   map[string]*schemas.Result
	said     []chatMessage // answers of all sessions
	spliced  *int
}

const (
	generatedToken = 1000
	endToken       = 2000
	spliceTool     = `{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}`
)

var answerEnds = map[string]string{"default": "<|im_end|>", "hermes": "<|im_end|>", "llama3": "<|eot_id|>", "kimi": "<|im_end|>"}

// spliceRenderers are renderers of the templates, each compiled once.
func spliceRenderers(t *testing.T) map[string]*tokenizer.Renderer {
	out := map[string]*tokenizer.Renderer{}
	for name := range answerEnds {
		text := chat.Fallback
		if name != "default" {
			b, err := os.ReadFile(filepath.Join("..", "..", "gpuexec", "chat", "testdata", "families", name+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		m := &model.Model{Name: "m", Engine: model.EngineLlama, Template: text, Vocab: nullengine.Vocab{}, EOS: "</s>"}
		m.Vision = &model.Vision{Token: nullengine.TokenImage, Text: nullengine.ImageText, Patch: 28}
		r, err := tokenizer.New(m, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = r
	}
	return out
}

// TestSplicedPromptsSayWhatClientsSent: whatever clients send as history, the tokens
// of a prompt are those of a rendering of just these messages, but for how recognised
// answers were generated: white space, and the tokens that stand for the text. An answer
// that the client changed, or that is another session's, is never taken for ours.
func TestSplicedPromptsSayWhatClientsSent(t *testing.T) {
	renderers, spliced, turns := spliceRenderers(t), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		template := rapid.SampledFrom(slices.Sorted(maps.Keys(renderers))).Draw(rt, "template")
		g := &spliceRig{
			T: rt, r: renderers[template], template: template, end: answerEnds[template], now: 1e12,
			tools: []json.RawMessage{json.RawMessage(spliceTool)}, ready: map[string]*schemas.Ready{}, failed: map[string]*schemas.Result{}, spliced: &spliced,
		}
		g.l = lineage.New(lineage.Config{Cell: "c0", DecayNS: -1, Models: []lineage.Model{{Name: "m", Digest: "d", Vocab: "v", Template: "tpl", Context: 1 << 20, Size: 259}}})
		g.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
			Header: schemas.H(), Executor: "e0", Node: "n0", Pool: "m", Format: schemas.KVFormat{Engine: "fake", Version: "1", Numerics: "none", Layout: 1},
		}})
		g.run()
		turns += int(g.seq)
	})
	if spliced == 0 {
		t.Errorf("no answer of %d turns was spliced, so this shows nothing", turns)
	}
	t.Logf("%d tokens of answers spliced in %d turns", spliced, turns)
}

// run lets three agents go on: two share a session, the third has the same session
// id with another tenant.
func (g *spliceRig) run() {
	where := []struct{ tenant, session string }{{"t", "s"}, {"t", "s"}, {"u", "s"}}
	histories := make([][]chatMessage, len(where))
	type pending struct {
		key   string
		agent int
	}
	var open []pending
	for range rapid.IntRange(4, 20).Draw(g.T, "steps") {
		if len(open) > 0 && rapid.Bool().Draw(g.T, "answer") {
			k := rapid.IntRange(0, len(open)-1).Draw(g.T, "which")
			p := open[k]
			open = slices.Delete(open, k, k+1)
			m := g.answer(p.key)
			histories[p.agent] = append(histories[p.agent], m)
			g.said = append(g.said, m)
			continue
		}
		a := rapid.IntRange(0, len(where)-1).Draw(g.T, "agent")
		if slices.ContainsFunc(open, func(p pending) bool { return p.agent == a }) {
			continue
		}
		h := g.change(histories[a])
		h = append(h, g.next(h)...)
		key := g.publish(where[a].tenant, where[a].session, h)
		if key == "" {
			continue // refused: nothing was rendered
		}
		histories[a] = h
		open = append(open, pending{key, a})
	}
}

// next is what an agent adds: results of calls, or what its user says.
func (g *spliceRig) next(h []chatMessage) (out []chatMessage) {
	if n := len(h); n > 0 && len(h[n-1].Calls) > 0 {
		for _, c := range h[n-1].Calls {
			out = append(out, chatMessage{Role: "tool", Answers: c.ID, Content: rapid.SampledFrom([]string{"24", "눈", "none"}).Draw(g.T, "result")})
		}
		return out
	}
	text := rapid.SampledFrom([]string{"go on", "서울?", "which one", "<|im_end|> x", "again"}).Draw(g.T, "user")
	if !rapid.Bool().Draw(g.T, "image") || g.template == "llama3" {
		return []chatMessage{{Role: "user", Content: text}}
	}
	url := fmt.Sprintf("weir-media:%s?type=image/png&w=56&h=56&bytes=1000", strings.Repeat(rapid.SampledFrom([]string{"a", "b"}).Draw(g.T, "which image"), 64))
	return []chatMessage{{Role: "user", Content: []any{
		map[string]any{"type": "text", "text": text}, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}},
	}}}
}

// change is a history as a client may send it: mostly as it was, else changed.
func (g *spliceRig) change(h []chatMessage) []chatMessage {
	out := slices.Clone(h)
	for i := range out {
		out[i].Calls = slices.Clone(out[i].Calls)
	}
	if len(out) == 0 || rapid.IntRange(0, 2).Draw(g.T, "how") > 0 {
		return out
	}
	i := rapid.IntRange(0, len(out)-1).Draw(g.T, "at")
	m := &out[i]
	switch rapid.IntRange(0, 7).Draw(g.T, "change") {
	case 0: // one character
		if s, ok := m.Content.(string); ok && s != "" {
			m.Content = s[:len(s)-1] + "#"
		}
	case 1:
		if s, ok := m.Content.(string); ok {
			m.Content = "#" + s
		}
	case 2: // another argument
		if len(m.Calls) > 0 {
			m.Calls[0].Function.Arguments = `{"city":"elsewhere"}`
		}
	case 3: // another order, with the ids that belong to the calls
		slices.Reverse(m.Calls)
	case 4: // the ids changed hands
		if len(m.Calls) > 1 {
			m.Calls[0].ID, m.Calls[1].ID = m.Calls[1].ID, m.Calls[0].ID
		}
	case 5: // an answer of somewhere else
		if len(g.said) > 0 && m.Role == "assistant" && len(m.Calls) == 0 {
			if o := g.said[rapid.IntRange(0, len(g.said)-1).Draw(g.T, "other")]; len(o.Calls) == 0 {
				*m = o
			}
		}
	case 6: // ids of the client's own, the same in each message
		for k := range out {
			for n := range out[k].Calls {
				old, id := out[k].Calls[n].ID, fmt.Sprint("call_", n)
				for j := k + 1; j < len(out) && out[j].Role == "tool"; j++ {
					if out[j].Answers == old {
						out[j].Answers = id
					}
				}
				out[k].Calls[n].ID = id
			}
		}
	case 7: // back to an earlier place
		for i > 0 && out[i].Role == "tool" {
			i--
		}
		out = out[:i]
	}
	return out
}

// publish sends a turn, checks its prompt, and returns its key.
func (g *spliceRig) publish(tenant, session string, h []chatMessage) string {
	g.seq++
	id := fmt.Sprint("u", g.seq)
	turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: id, Inferred: true}}
	turn.Tools = g.tools
	for _, m := range h {
		b, err := json.Marshal(m)
		if err != nil {
			g.Fatal(err)
		}
		turn.Messages = append(turn.Messages, b)
	}
	g.step(&schemas.Msg{
		Kind: schemas.KindTurn, Subject: schemas.AgentSubject(tenant, session, schemas.EventTurn), Seq: g.seq, At: g.now, Digest: id, Turn: turn,
	})
	key := tenant + "/" + session + "/" + id
	for range 100 { // a turn that quotes an answer in work is held for a while
		if g.ready[key] != nil || g.failed[key] != nil || g.l.Next() == schemas.Never {
			break
		}
		g.now = max(g.now, g.l.Next())
		g.step(&schemas.Msg{Kind: schemas.KindTick})
	}
	r := g.ready[key]
	want := g.r.Render(&schemas.RenderRequest{Header: schemas.H(), Messages: turn.Messages, Tools: turn.Tools, NowNS: int64(g.now)})
	switch {
	case want.Failure != nil && r == nil:
		return ""
	case r == nil && g.failed[key] != nil:
		return "" // a result without its call
	case r == nil || want.Failure != nil:
		g.Fatalf("turn %s is ready as %+v; a fresh rendering is %+v", key, r, want.Failure)
	}
	toks := g.tokens(r)
	got, fresh := text(toks, g.end), text(want.Tokens, "")
	if bare(got) != bare(fresh) {
		g.Fatalf("template %s: the prompt of %s on branch %s says\n%q\nits messages say\n%q", g.template, key, r.Branch, got, fresh)
	}
	var is, was []string
	for _, m := range r.Prompt.Media {
		is = append(is, m.Digest)
		for _, tok := range toks[m.Offset : m.Offset+m.Length] {
			if tok != nullengine.TokenImage {
				g.Fatalf("%s: token %d stands where image %.8s is", key, tok, m.Digest)
			}
		}
	}
	for _, m := range want.Media {
		was = append(was, m.Digest)
	}
	if !slices.Equal(is, was) {
		g.Fatalf("%s shows the images %.8s, its messages have %.8s", key, is, was)
	}
	return key
}

// tokens are all tokens of a prompt.
func (g *spliceRig) tokens(r *schemas.Ready) schemas.Tokens {
	toks := r.Prompt.Tail
	if n := r.Prompt.TailFrom; n > 0 {
		out := g.l.Step(g.now, &schemas.Msg{Kind: schemas.KindTokensRequest, Reply: "r.1", TokensReq: &schemas.TokensRequest{
			Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, To: n,
		}}, nil)
		if len(out) != 1 || out[0].TokensRep.Error != "" {
			g.Fatalf("the head of %s: %+v", r.Turn, out)
		}
		toks = append(slices.Clone(out[0].TokensRep.Tokens[:n]), toks...)
	}
	for _, t := range toks {
		if t >= generatedToken {
			*g.spliced++
		}
	}
	return toks
}

// text is what tokens say.
func text(toks schemas.Tokens, end string) string {
	var b strings.Builder
	for _, t := range toks {
		switch {
		case t == endToken:
			b.WriteString(end)
		case t >= generatedToken:
			b.WriteByte(byte(t - generatedToken))
		default:
			b.Write(nullengine.Vocab{}.Piece(t, true))
		}
	}
	return b.String()
}

// bare is a text without white space.
func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// answer ends a turn with something a model could have said.
func (g *spliceRig) answer(key string) chatMessage {
	r := g.ready[key]
	texts := []string{"yes", "24 °C, 맑음", " spaces \n", "says <|im_end|> itself", "a longer answer, of more words than one block of tokens could ever hold, with a number: 1234567"}
	for _, args := range [][2]string{{"{\"city\": \"서울\"}", ""}, {"{\"city\":\"x\"}", "{ \"city\":  \"y\" }"}} {
		switch g.template {
		case "default", "hermes":
			s := ""
			for _, a := range args {
				if a != "" {
					s += "<tool_call>{\"name\":\"weather\",\"arguments\": " + a + "}</tool_call>\n"
				}
			}
			texts = append(texts, s, "I look.\n"+s)
		case "llama3":
			texts = append(texts, `{"name":"weather", "parameters":`+args[0]+`}`)
		}
	}
	said := rapid.SampledFrom(texts).Draw(g.T, "says")
	spec, err := chat.ParseSpec(r.Parse)
	if err != nil {
		g.Fatal(err)
	}
	p := chat.NewParser(spec, r.Job)
	p.Add(said)
	p.End()
	res := &schemas.Result{
		Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Branch: r.Branch, Job: r.Job, Attempt: 1, Status: schemas.StatusOK,
		Text: said, Finish: "stop", End: g.end, Parse: r.Parse, Message: p.Message(),
	}
	for i := range len(said) {
		res.Tokens = append(res.Tokens, int32(said[i])+generatedToken)
	}
	if rapid.IntRange(0, 3).Draw(g.T, "cut") == 0 {
		res.Finish, res.End = "length", ""
	} else {
		res.Tokens = append(res.Tokens, endToken)
	}
	if p.Calls() > 0 && res.Finish == "stop" {
		res.Finish = "tool_calls"
	}
	g.seq++
	g.step(&schemas.Msg{Kind: schemas.KindResult, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), Seq: g.seq, At: g.now, Result: res})
	var m chatMessage
	if err := json.Unmarshal(res.Message, &m); err != nil {
		g.Fatal(err)
	}
	return m
}

func (g *spliceRig) step(m *schemas.Msg) {
	g.now += 1000
	for out := g.l.Step(g.now, m, nil); len(out) > 0; {
		o := out[0]
		out = out[1:]
		switch o.Kind {
		case schemas.KindOp:
			d := schemas.OpDone{ID: o.Op.ID, Render: &schemas.RenderDone{}}
			if o.Op.Render == nil {
				g.Fatalf("lineage asks for %+v", o.Op)
			}
			d.Render.Reply = g.r.Render(&o.Op.Render.Request)
			out = append(out, g.l.Step(g.now, &schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d}, nil)...)
		case schemas.KindReady:
			g.ready[o.Ready.Tenant+"/"+o.Ready.Session+"/"+o.Ready.Turn] = o.Ready
		case schemas.KindResult:
			g.failed[o.Result.Tenant+"/"+o.Result.Session+"/"+o.Result.Turn] = o.Result
		default:
		}
		if o.Confirm {
			out = append(out, g.l.Step(g.now, &schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID}, nil)...)
		}
	}
}
