package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// raw splits a JSON array into its elements.
func raw(t testing.TB, array string) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(array), &out); err != nil {
		t.Fatalf("%s: %v", array, err)
	}
	return out
}

func render(t testing.TB, source string, in Input) string {
	t.Helper()
	tmpl, err := Compile(source)
	if err != nil {
		t.Fatalf("%s\n%v", source, err)
	}
	out, err := tmpl.Render(in)
	if err != nil {
		t.Fatalf("%s\n%v", source, err)
	}
	return out
}

// Each feature that templates of open models use, with what Jinja2 prints.
func TestFeatures(t *testing.T) {
	in := Input{
		Messages: raw(t, `[{"role":"system","content":"C"},{"role":"user","content":"한국어 q"}]`),
		Kwargs:   json.RawMessage(`{"d":{"zeta":1,"alpha":"x"},"ms":["p","q","r"],"one":["o"],"nul":null,"f":1.0,"big":1e22,"t":"a</think>b"}`),
		BOS:      "<s>", EOS: "</s>", Now: time.Date(2026, 12, 1, 9, 5, 3, 0, time.UTC),
	}
	for _, c := range [][2]string{
		// Conditional expressions, wherever an expression may stand.
		{`{{ 'a' + ('b' if x else 'd') + 'e' }}`, "ade"},
		{`{{ 'a' if x else 'b' if y else 'c' }}`, "c"},
		{`{{ 'a' if x }}|`, "|"},
		{`{{ ['a' if x else 'b', 'c'][0] }}`, "b"},
		{`{{ {'k': 'a' if x else 'b'}.k }}`, "b"},
		{`{% set v = 'a' if x else 'b' %}{{ v }}`, "b"},
		{`{% if ('a' if x else '') %}y{% else %}n{% endif %}`, "n"},
		{`{{ messages[0]['content'] if messages[0]['role'] == 'system' else 'none' }}`, "C"},
		{`{{ x.y if x is defined else 'lazy' }}`, "lazy"},
		{`{% for m in (ms if x else one) %}{{ m }}{% endfor %}`, "o"},
		{`{{ ('a' + 'b').strip('b') }}{{ ('a' ~ 'b')|upper }}{{ ("if" + 'x')[1:] }}`, "aABfx"},
		{`{{ 'a' 'b' "c" }}`, "abc"},
		// Indices and slices.
		{`{{ one[-1] }}{{ ms[-1] }}{{ messages[-1].role }}{{ messages[1:][-1]['role'] }}`, "oruseruser"},
		{`{{ 'abc'[1:] }} {{ 'abc'[::-1] }} {{ 'abc'[-1] }} {{ ms[::-1][0] }}`, "bc cba c r"},
		{`{% set tail = one + [] %}{{ tail[-1] }}{{ (messages|selectattr('role','equalto','user')|list)[-1].role }}`, "ouser"},
		{`{{ messages[1].content[:3] }}`, "한국어"},
		{`{{ (1, 2)[0] }}{{ {'a': 1}['a'] }}{{ ms[5] is defined }}`, "11False"},
		{`{{ '한국어'[0] }}{{ '한국어'[-1] }}{{ ms[0][0] }}{{ '한국어'[9] is defined }}{{ 'ab'[1 - 1] }}`, "한어pFalsea"},
		// Comparisons and the precedence of filters.
		{`{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 < 2 == 2 and 1 < 1 < 5 or 'z' }}{{ not 1 < 5 < 3 }}`, "TrueFalsezTrue"},
		{`{{ 'a' in 'A'|lower }}{{ 'b' not in 'B' | lower }}{{ 'y' if not '' | length }}{{ 'b' in ['b'] | list and true }}`, "TrueFalseyTrue"},
		{`{{ 'U'.lower() == 'u' }}{{ 'U'.lower() in ['u'] }}`, "TrueTrue"},
		{`{{ 'y' if {} else 'n' }}{{ 'y' if d.none or {} else 'n' }}{{ {}|tojson }}{{ {} is mapping }}{% for k in {} %}{{ k }}{% endfor %}`, "nn{}True"},
		// Strings.
		{`{{ 'abcabc'.replace('a','x') }} {{ 'aaa'.replace('a','b',1) }}`, "xbcxbc baa"},
		{`{{ '  abc '.lstrip() }}|{{ ' a '.strip() }}|{{ 'xxaxx'.rstrip('x') }}|{{ ' a '|trim }}|`, "abc |a|xxa|a|"},
		{`{{ 'a,b'.split(',')[-1] }}{{ ' a  b '.split()[1] }}{{ 'a:b:c'.split(':', 1)[1] }}{{ 'a:b:c'.rsplit(':', 1)[0] }}`, "bbb:ca:b"},
		{`{{ t.split('</think>')[-1].lstrip('\n') }}{{ t.split('</think>')[0] }}`, "ba"},
		{`{{ 'x'.startswith(('y', 'x')) }}{{ 'x'.endswith('y') }}{{ 'AbC'|lower }}{{ 'abc'.upper().lower() }}`, "TrueFalseabcabc"},
		{`{{ 'a\nb' }}{{ "a\\nb" }}{{ 'it''s' }}`, "a\nba\\nbits"},
		{`{{ '%s-%d' | format('a', 3) }}{{ 'a{}b'.format(1) }}{{ ', '.join(ms) }}{{ 'abc'.find('c') }}`, "a-3a1bp, q, r2"},
		// Loops and scopes.
		{`{% set ns = namespace(a=1, b='') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}`, "4"},
		{`{% for m in ms %}{% if loop.first %}{% continue %}{% endif %}{{ m }}{{ loop.index0 }}{% if loop.last %}!{% endif %}{% endfor %}`, "q1r2!"},
		{`{% for m in ms %}{{ m }}{% if m == 'q' %}{% break %}{% endif %}{% endfor %}`, "pq"},
		{`{% for m in ms if m != 'q' %}{{ m }}{{ loop.length }}{% else %}none{% endfor %}`, "p2r2"},
		{`{% for m in [] %}x{% else %}none{% endfor %}{% for i in range(2, 0, -1) %}{{ i }}{% endfor %}`, "none21"},
		{`{% for m in ms %}{{ loop.previtem or '-' }}{{ loop.nextitem or '-' }}{% endfor %}`, "-qprq-"},
		{`{% macro f(a, b=none) %}[{{ a }}{{ b or 'nil' }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}`, "[1nil][12]"},
		{`{% macro f(x) %}<{{ x }}{{ caller(1, 'b') }}>{% endmacro %}{% macro g() %}g{% endmacro %}{% call(n, s) f(g()) %}{{ n }}{{ s }}{% endcall %}`, "<g1b>"},
		{`{% set ns = namespace(n=0) %}{% macro f() %}{% set ns.n = ns.n + 1 %}x{% endmacro %}{{ f().strip().upper() }}{{ ns.n }}`, "X1"},
		{`{{ ms|reverse|join }}{{ 'abc'|reverse }}{{ 'a-b c\\d'|title }}{{ -1 is odd }}{{ '1' is upper }}`, "rqpcbaA-B C\\dTrueFalse"},
		{`{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(3) }}`, "3210"},
		{`{% set x %}hello {{ 1 + 1 }}{% endset %}{{ x }}`, "hello 2"},
		{`{% set z = 1 %}{% if true %}{% set z = 2 %}{% endif %}{{ z }}`, "2"},
		{`{% generation %}a{% endgeneration %}{% raw %}{{ x if }}{% endraw %}`, "a{{ x if }}"},
		{`{% set a, b = 1, 2 %}{{ a + b }}{% for a, b, c in [[1,2,3],[4,5,6]] -%} {{ a + b + c }},{% endfor %}{% for (a, b) in [[1,2]] %}{{ b }}{% endfor %}`, "36,15,2"},
		{`{% filter upper %}a{% endfilter %}{% with q = 1 %}{{ q }}{% endwith %}`, "A1"},
		// Objects keep the order of their keys.
		{`{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}`, "zeta=1;alpha=x;zetaalpha"},
		{`{% for k in d %}{{ k }};{% endfor %}{{ d.keys()|list|join(',') }}{% for k, v in d|dictsort %}{{ k }}{% endfor %}`, "zeta;alpha;zeta,alphaalphazeta"},
		{`{{ d.zeta }}{{ d['alpha'] }}{{ d.get('zeta') }}{{ d.get('q', 'dflt') }}{{ 'zeta' in d }}`, "1x1dfltTrue"},
		{`{{ d|tojson }}`, `{"zeta": 1, "alpha": "x"}`},
		{`{{ d | tojson(indent=2) }}`, "{\n  \"zeta\": 1,\n  \"alpha\": \"x\"\n}"},
		{`{{ {'a': [1, {'b': none}], 'c': true}|tojson }}{{ f|tojson }}{{ big|tojson }}{{ []|tojson }}{{ {}|tojson }}`, `{"a": [1, {"b": null}], "c": true}1.01e+22[]{}`},
		{`{{ "é<>&'\"" | tojson }}{{ 'é😀'|tojson(ensure_ascii=true) }}{{ d|tojson(separators=(',', ':')) }}`, `"é<>&'\"""\u00e9\ud83d\ude00"{"zeta":1,"alpha":"x"}`},
		// Tests.
		{`{{ x is defined }}{{ nul is defined }}{{ nul is none }}{{ x is not defined }}{{ tools is none }}`, "FalseTrueTrueTrueTrue"},
		{`{{ x is none }}{{ x is not none }}{% set n = none %}{{ n is none }}{{ n is defined }}{{ n == none }}{{ n is not none }}`, "FalseTrueTrueTrueTrueFalse"},
		{`{% macro f(a, b=none) %}{{ a is defined }}{{ b is none }}{% endmacro %}{{ f() }}{{ f(None) }}{{ nul|default('q') }}{{ ''|default('r', true) }}`, "FalseTrueTrueTruer"},
		{`{% set ns = namespace(v=none) %}{{ ns.v is none }}{% set ns.v = none %}{{ ns.v is none }}{{ d.get('nope') is none }}`, "TrueTrueTrue"},
		{`{{ ms is sequence }}{{ 'a' is sequence }}{{ 'a' is string }}{{ d is mapping }}{{ ms is iterable and ms is not mapping }}`, "TrueTrueTrueTrueTrue"},
		{`{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 3 is divisibleby(3) }}{{ 1 is number }}`, "TrueFalseTrueTrueTrue"},
		{`{% if not (x and y) and 'a' in 'cat' and 'z' not in 'cat' and not x is defined %}yes{% endif %}`, "yes"},
		{`{{ ms|length - 1 }}{{ (ms|length - 1) }}{{ 3 % 2 == 1 }}{{ 7 // 2 }}{{ 1 < 2 and 2 >= 2 or false }}`, "22True3True"},
		{`{{ x|default('q') }}{{ x or 'z' }}{{ ms|first }}{{ ms|last }}{{ ms|map('upper')|join }}{{ messages|map(attribute='role')|join(',') }}`, "qzprPQRsystem,user"},
		// White space, as transformers sets it: trim_blocks and lstrip_blocks.
		{"a\n    {% if true %}\nb\n    {% endif %}\nc\n", "a\nb\nc"},
		{"{{- '<|im_start|>' + 'role' + '\\n' -}}   \n  x", "<|im_start|>role\nx"},
		{"{%- for m in ms[1:] -%}\n  {{- m }}\n{%- endfor %}", "qr"},
		{"{%- for m in ms if m != 'q' %}{{ loop.index }}/{{ loop.length }} {% endfor %}", "1/2 2/2 "},
		{"a\n  {#- c #}\n  {# d #}\n\t{% set y = 1 %}  \n{%+ if true +%}\n b{% endif %}\n", "a  \n\n b"},
		{"{% raw %}\n {{ a }}\n  {% endraw %}\nx\r\ny", "\n {{ a }}\nx\ny"},
		{"{{ \"a \\\nb\\\n\" + 'c\\\\\nd' }}|", "a bc\\\nd|"},
		{"{# comment #}a{#- c -#} b {{ bos_token }}{{ eos_token }}", "ab <s></s>"},
		{"{ {a}", "{ {a}"},
		{`{{ strftime_now('%d %b %Y %H:%M:%S %B %A %-d %j %% %q') }}`, "01 Dec 2026 09:05:03 December Tuesday 1 335 % %q"},
	} {
		tmpl, err := Compile(c[0])
		if err != nil {
			t.Errorf("%s\n\t%v", c[0], err)
			continue
		}
		if got, err := tmpl.Render(in); err != nil || got != c[1] {
			t.Errorf("%s\n\tgot  %q\n\twant %q\n\t%v", c[0], got, c[1], err)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"raise", `{{ raise_exception('roles must alternate') }}`, "refused: roles must alternate"},
		{"raise in macro", `{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{{ f() }}`, "refused: deep"},
		{"syntax", "a\n{% if %}x{% endif %}", "does not compile"},
		{"no end", "line\n{{ a", `line 2: "{{" has no "}}"`},
		{"string without end", "{{ 'a }}", "string without end"},
		{"block without end", "{% for m in messages %}", "does not compile"},
		{"unknown tag", "{% frobnicate %}", "does not compile"},
		{"unknown filter", "{{ 1|frobnicate }}", "frobnicate"},
		{"include", "{% include '/etc/passwd' %}", "does not compile"},
		{"import", "{% import '/etc/passwd' as x %}", "does not compile"},
		{"extends", "{% extends '/etc/passwd' %}", "does not compile"},
		{"unknown method", "{{ 'a'.frobnicate() }}", "no method"},
		{"list method", "{{ messages.append(1) }}", "no method"},
		{"call without macro", "{% call 1 %}{% endcall %}", "does not compile"},
		{"call with too many", "{% macro f() %}{{ caller(1) }}{% endmacro %}{% call f() %}{% endcall %}", "takes 0 arguments"},
		{"attribute of undefined", "{{ a.b.c }}", "cannot render"},
		{"not callable", "{{ messages() }}", "cannot render"},
		{"brackets", "{{ (a] }}", "does not compile"},
		{"deep brackets", "{{ " + strings.Repeat("(", 1000) + " }}", "nest deeper"},
		{"recursive loop", "{% for a in messages recursive %}{{ loop([1]) }}{% endfor %}", "recursive loops are not supported"},
		{"endless recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper than 100"},
		{"many steps", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "loop steps"},
		{"range", "{% for a in range(10000000000) %}{% endfor %}", "more than 100000 elements"},
		{"range step", "{{ range(1, 2, 0) }}", "step is 0"},
		{"output", "{% for a in range(100000) %}{{ '" + strings.Repeat("x", 1000) + "' }}{% endfor %}", "output exceeds"},
		{"modulo by zero", "{{ 1 % 0 }}", "cannot render"},
		{"negative repeat", "{{ 'a' * -1 }}", "cannot render"},
		{"size", strings.Repeat("x", maxSource+1), "at most"},
		{"tojson of a function", "{{ range|tojson }}", "tojson"},
	} {
		tmpl, err := Compile(c.source)
		if err == nil {
			_, err = tmpl.Render(Input{Messages: raw(t, `[{"role":"user","content":"hi"}]`)})
		}
		if !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to say %q", c.name, err, c.want)
			continue
		}
		if len(err.Error()) > 600 {
			t.Errorf("%s: error of %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestInputErrors(t *testing.T) {
	tmpl, err := Compile(Fallback)
	if err != nil {
		t.Fatal(err)
	}
	message := func(s string) Input { return Input{Messages: []json.RawMessage{json.RawMessage(s)}} }
	for _, c := range []struct {
		in   Input
		want string
	}{
		{message(`7`), "messages[0] must be an object"},
		{message(`{`), "messages[0] is not valid JSON"},
		{message(`{"role":"user"} x`), "messages[0] is not valid JSON"},
		{message(`{"content":"a"}`), "messages[0].role must be a string"},
		{message(`{"role":7}`), "messages[0].role must be a string"},
		{message(`{"role":"user","content":7}`), "messages[0].content must be a string"},
		{message(`{"role":"user","content":[{"text":"a"}]}`), "messages[0].content[0] must be an object with a type"},
		{message(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text must be a string"},
		{message(`{"role":"assistant","tool_calls":{}}`), "messages[0].tool_calls must be an array"},
		{message(`{"role":"assistant","tool_calls":[{"function":{}}]}`), "messages[0].tool_calls[0].function.name"},
		{message(`{"role":"user","content":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`), "nested deeper"},
		{Input{Tools: raw(t, `[1]`)}, "tools[0] must be a JSON object"},
		{Input{Kwargs: json.RawMessage(`[]`)}, "chat_template_kwargs must be an object"},
		{Input{Kwargs: json.RawMessage(`{"messages":1}`)}, "chat_template_kwargs.messages is set by the server"},
	} {
		if _, err := tmpl.Render(c.in); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want it to say %q", err, c.want)
		}
	}
}

func TestFallback(t *testing.T) {
	got := render(t, Fallback, Input{Messages: raw(t, `[
		{"role":"system","content":"Be brief."},
		{"role":"user","content":[{"type":"text","text":"안녕"},{"type":"text","text":"you"}]},
		{"role":"assistant","content":null}]`), AddGenerationPrompt: true})
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n안녕\nyou<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A template of our own in the manner of tool-calling families: system with
// tools, arguments as an object, tool results grouped, reasoning dropped from
// earlier turns.
const toolTemplate = `{%- if tools %}
    {{- '<|system|>\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|system|>\n' + messages[0].content + '\n' }}
{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.last_user < 0 and message.role == "user" and message.content is string %}
        {%- set ns.last_user = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|' + message.role + '|>\n' + content + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in content and loop.index0 < ns.last_user %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|assistant|>\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
            {%- set fn = call.function if call.function else call %}
            {{- '<call>{"name": "' + fn.name + '", "arguments": ' }}
            {{- fn.arguments if fn.arguments is string else fn.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|tool|>' }}{%- endif %}
        {{- '\n<response>' + content + '</response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}`

func TestToolTemplate(t *testing.T) {
	got := render(t, toolTemplate, Input{
		Messages: raw(t, `[
			{"role":"system","content":"S"},
			{"role":"user","content":"first"},
			{"role":"assistant","content":"<think>hm</think>\n\nanswer"},
			{"role":"user","content":"날씨?"},
			{"role":"assistant","content":null,"tool_calls":[
				{"id":"1","type":"function","function":{"name":"w","arguments":"{\"z\":\"서울\",\"a\":[1,2.5]}"}},
				{"id":"2","type":"function","function":{"name":"v","arguments":"not json"}}]},
			{"role":"tool","tool_call_id":"1","content":"맑음"},
			{"role":"tool","tool_call_id":"2","content":"err"}]`),
		Tools:               raw(t, `[{"type":"function","function":{"name":"w","parameters":{"type":"object","properties":{"z":{"type":"string"},"items":{"type":"array"}}}}}]`),
		Kwargs:              json.RawMessage(`{"enable_thinking":false}`),
		AddGenerationPrompt: true,
	})
	want := `<|system|>
S

# Tools
<tools>
{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "items": {"type": "array"}}}}}
</tools>
<|user|>
first
<|assistant|>
answer
<|user|>
날씨?
<|assistant|>
<call>{"name": "w", "arguments": {"z": "서울", "a": [1, 2.5]}}</call>
<call>{"name": "v", "arguments": not json}</call>
<|tool|>
<response>맑음</response>
<response>err</response>
<|assistant|>
<think>

</think>

`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPartsWithImageStay(t *testing.T) {
	got := render(t, `{% for p in messages[0].content %}{{ '<img>' if p.type == 'image_url' else p.text }}{% endfor %}`,
		Input{Messages: raw(t, `[{"role":"user","content":[{"type":"text","text":"see "},{"type":"image_url","image_url":{"url":"data:"}}]}]`)})
	if got != "see <img>" {
		t.Errorf("got %q", got)
	}
}

// One compiled template serves all turns; a rendering leaves nothing behind.
func TestRenderTwice(t *testing.T) {
	tmpl, err := Compile(toolTemplate)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Messages: raw(t, `[{"role":"user","content":"a"}]`)}
	first, err := tmpl.Render(in)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 4)
	for range cap(done) {
		go func() {
			out, err := tmpl.Render(in)
			if err != nil {
				out = err.Error()
			}
			done <- out
		}()
	}
	for range cap(done) {
		if out := <-done; out != first {
			t.Errorf("rendered %q, then %q", first, out)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(Fallback)
	f.Add(toolTemplate)
	f.Add("{{ (a if b else c)[-1] | tojson }}{% set x %}{% endset %}")
	f.Add("{%- macro f(a, b=(1 if 2 else 3)) -%}{%- endmacro -%}{% raw %}{{{% endraw %}{#")
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4096 || strings.Contains(source, "*") { // repeating a string may use much memory
			return
		}
		tmpl, err := Compile(source)
		if err != nil {
			if !errors.Is(err, ErrTemplate) {
				t.Fatalf("error %v does not wrap ErrTemplate", err)
			}
			return
		}
		if _, err := tmpl.Render(Input{Messages: raw(t, `[{"role":"user","content":"a"}]`)}); err != nil && !errors.Is(err, ErrTemplate) {
			t.Fatalf("error %v does not wrap ErrTemplate", err)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl, err := Compile(toolTemplate)
	if err != nil {
		b.Fatal(err)
	}
	messages := "[" + strings.Repeat(`{"role":"user","content":"question of some length"},{"role":"assistant","content":"answer"},`, 100) + `{"role":"user","content":"last"}]`
	in := Input{Messages: raw(b, messages), AddGenerationPrompt: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

// A chain of methods costs one evaluation each.
func TestLongChain(t *testing.T) {
	source := "{% macro f() %}x{% endmacro %}{{ f()" + strings.Repeat(".strip()", 200) + " }}"
	if got := render(t, source, Input{}); got != "x" {
		t.Errorf("got %q", got)
	}
}

// What one rendering may read and write is bounded.
func TestWorkIsBounded(t *testing.T) {
	messages := []json.RawMessage{json.RawMessage(`{"role":"user","content":"` + strings.Repeat("word ", 100_000) + `"}`)}
	for name, source := range map[string]string{
		"json":       "{% for a in range(500) %}{% for b in range(500) %}{{ messages|tojson|length }}{% endfor %}{% endfor %}",
		"assignment": "{% set ns = namespace(t='') %}{% for a in range(90000) %}{% set ns.t = messages[0].content ~ a %}{% endfor %}",
		"character":  "{% for a in range(90000) %}{{ messages[0].content[-1] }}{% endfor %}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tmpl.Render(Input{Messages: messages}); !errors.Is(err, ErrTemplate) || !errors.Is(err, ErrWork) {
				t.Error(err)
			}
		})
	}
}

// Rewriting takes no more than the square of a tag's words, which are bounded.
func TestDeepExpressions(t *testing.T) {
	for name, source := range map[string]string{
		"comparisons":  "{{ " + strings.Repeat("1 < (", 60) + "2" + strings.Repeat(" < 3) < 4", 60) + " }}",
		"subscripts":   "{{ " + strings.Repeat("messages[", 60) + "0" + strings.Repeat("]", 60) + " }}",
		"methods":      "{{ " + strings.Repeat("'a'.replace(", 60) + "'a', 'b'" + strings.Repeat(", 'c')", 60) + " }}",
		"in":           "{{ 1" + strings.Repeat(" in 'a'|list", 600) + " }}",
		"not":          "{{" + strings.Repeat(" not", 4000) + " 1|int }}",
		"conditionals": "{{ 1" + strings.Repeat(" if 0 else 1", 900) + " }}",
		"long":         "{{ 1" + strings.Repeat(" in 1", 100_000/5) + " }}",
	} {
		if tmpl, err := Compile(source); err == nil {
			_, err = tmpl.Render(Input{Messages: raw(t, `[{"role":"user","content":"a"}]`)})
			if err != nil && !errors.Is(err, ErrTemplate) {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.Is(err, ErrTemplate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
