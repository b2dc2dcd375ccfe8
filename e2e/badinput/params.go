package badinput

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Params are requests with absurd parameters. llama is set where the stack's engine
// can constrain its answers.
func Params(llama bool) []Input {
	ins := numbers()
	ins = append(ins, meta()...)
	return append(ins, constraints(llama)...)
}

// numbers are numbers and lists out of their range.
func numbers() []Input {
	var ins []Input
	for _, c := range [...][2]string{
		{"temperature", "NaN"},
		{"temperature", "1e308"},
		{"temperature", "1e400"},
		{"temperature", "-1"},
		{"temperature", `"hot"`},
		{"temperature", "[]"},
		{"top_p", "7"},
		{"top_p", "-0.1"},
		{"min_p", "2"},
		{"top_k", "-7"},
		{"top_k", "1.5"},
		{"frequency_penalty", "3"},
		{"presence_penalty", "-3"},
		{"repetition_penalty", "0"},
		{"repetition_penalty", "-1"},
		{"n", "0"},
		{"n", "129"},
		{"max_completion_tokens", "0"},
		{"top_logprobs", "99"},
		{"seed", "1e30"},
		{"seed", "0.5"},
		{"seed", `"x"`},
		{"stop", `[""]`},
		{"stop", "5"},
		{"stop", `[1]`},
		{"logit_bias", `[1]`},
		{"logit_bias", `{"1":"x"}`},
		{"stop", `["` + strings.Repeat("x", 300) + `"]`},
		{"stop", `["x"` + strings.Repeat(`,"x"`, 999) + `]`},
	} {
		says := c[0]
		if c[1] == "NaN" {
			says = "invalid character"
		}
		ins = append(ins, Input{Name: c[0] + " " + c[1], Body: chat(`,"` + c[0] + `":` + c[1]), Code: invalid, Status: 400, Says: says, Dead: true})
	}
	for _, v := range [...]string{"0", "-5", "1e18", "1000000000000000000", "99999999999999999999999"} {
		ins = append(ins, Input{
			Name: "max_tokens " + v, Body: fixed(`{"messages":[{"role":"user","content":"a"}],"max_tokens":` + v + `}`),
			Code: invalid, Status: 400, Says: "max_tokens", Dead: true,
		})
	}
	ins = append(ins, Input{Name: "best_of 3", Body: bare(`"prompt":"a","max_tokens":2,"best_of":3`), Path: "/v1/completions", Code: invalid, Status: 400, Says: "best_of"})
	return append(ins, meaningless()...)
}

// meaningless are values of the right type that mean nothing to the model or to weir.
func meaningless() []Input {
	var ins []Input
	many := &strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(many, `,"%d":1`, i)
	}
	for _, c := range [...][3]string{
		{"n", "2", "n is 2"},
		{"logprobs", `"x"`, "logprobs"},
		{"top_logprobs", "5", "logprobs"},
		{"logit_bias", `{"abc":1}`, "logit_bias"},
		{"logit_bias", `{"-1":1}`, "logit_bias"},
		{"logit_bias", `{"99999999":1}`, "logit_bias"},
		{"logit_bias", `{"99999999999999999999":1}`, "logit_bias"},
		{"logit_bias", `{"1":101}`, "logit_bias"},
		{"logit_bias", `{"1":-1e300}`, "logit_bias"},
		{"logit_bias", "{" + many.String()[1:] + "}", "logit_bias"},
		{"modalities", `["audio"]`, "modalities"},
		{"audio", `{"voice":"a"}`, "audio"},
		{"functions", `[{}]`, "functions"},
		{"tools", `[5]`, "tools"},
		{"tools", `[{}]`, "tools"},
		{"tool_choice", `17`, "tool_choice"},
		{"tool_choice", `"sometimes"`, "tool_choice"},
		{"chat_template_kwargs", `[1]`, "chat_template_kwargs"},
		{"chat_template_kwargs", `"x"`, "chat_template_kwargs"},
	} {
		ins = append(ins, Input{Name: c[0] + " " + c[1], Body: chat(`,"` + c[0] + `":` + c[1]), Code: invalid, Status: 400, Says: c[2]})
	}
	for _, c := range [...][2]string{{"seed", "-1"}, {"seed", "-9223372036854775808"}, {"seed", "9223372036854775807"}, {"top_p", "0"}, {"top_k", "1048576"}, {"stop", "null"}, {"temperature", "null"}} {
		ins = append(ins, Input{Name: c[0] + " " + c[1], Body: chat(`,"` + c[0] + `":` + c[1]), Code: Answered, Status: 200})
	}
	return ins
}

// meta are "weir" objects about what does not exist.
func meta() []Input {
	past := time.Now().Add(-time.Hour).UnixNano()
	known := strings.Repeat("ab", 16)
	return []Input{
		{Name: "turn id with a dot", Body: chat(`,"weir":{"turn":"a.b"}`), Code: invalid, Status: 400, Says: "weir.turn", Dead: true},
		{Name: "turn id with a wildcard", Body: chat(`,"weir":{"turn":"*"}`), Code: invalid, Status: 400, Says: "weir.turn", Dead: true},
		{Name: "turn id too long", Body: chat(`,"weir":{"turn":"` + strings.Repeat("a", 65) + `"}`), Code: invalid, Status: 400, Says: "weir.turn", Dead: true},
		{Name: "branch with a space", Body: chat(`,"weir":{"branch":"a b"}`), Code: invalid, Status: 400, Says: "weir.branch", Dead: true},
		{Name: "unknown parent", Body: chat(`,"weir":{"branch":"b","parent":"nobody"}`), Code: schemas.CodeSession, Status: 404, Says: "nobody"},
		{Name: "known of an unknown session", Body: chat(`,"weir":{"known":"` + known + `"}`), Code: schemas.CodeNeedFull, Status: 422, Says: "all messages"},
		{Name: "known that is garbage", Body: chat(`,"weir":{"known":"` + strings.Repeat("zz", 40) + `"}`), Code: invalid, Status: 400, Says: "weir.known", Dead: true},
		{Name: "deadline before 1970", Body: chat(`,"weir":{"deadline_ns":-1}`), Code: invalid, Status: 400, Says: "deadline_ns", Dead: true},
		{Name: "deadline that has passed", Body: chat(fmt.Sprintf(`,"weir":{"deadline_ns":%d}`, past)), Path: "-", Code: schemas.CodeDeadline},
		{Name: "tokens that the model lacks", Body: bare(`"weir":{"input_tokens":[1,2,2000000]},"max_tokens":2`), Path: "-", Code: invalid, Says: "2000000"},
		{Name: "a negative token", Body: bare(`"prompt":[1,-2,3],"max_tokens":2`), Path: "/v1/completions", Code: invalid, Status: 400, Says: "-2"},
		{Name: "a token beyond int32", Body: bare(`"weir":{"input_tokens":[99999999999]}`), Path: "-", Code: invalid, Says: "token", Dead: true},
		{Name: "forced tokens that the model lacks", Body: chat(`,"weir":{"force_output":[1,2000000]}`), Code: invalid, Status: 400, Says: "force_output"},
		{Name: "a negative forced token", Body: chat(`,"weir":{"force_output":[-1]}`), Code: invalid, Status: 400, Says: "force_output"},
		{Name: "forced output beyond the context", Body: func() []byte { return chat(`,"weir":{"force_output":[1` + strings.Repeat(",1", 9000) + `]}`)() }, Code: schemas.CodeTooLong, Status: 400, Says: "forced"},
		{Name: "a body reference over HTTP", Body: chat(`,"body_ref":{"digest":"` + strings.Repeat("0", 64) + `","bytes":5}`), Code: invalid, Status: 400, BusCode: "-", Says: "body_ref"},
	}
}

// constraints are grammars and schemas that take too much or mean nothing.
func constraints(llama bool) []Input {
	schema := func(s string) func() []byte {
		return chat(`,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":` + s + `}}`)
	}
	grammar := func(g string) func() []byte { return chat(`,"grammar":` + g) }
	deep := strings.Repeat(`{"type":"array","items":`, 3000) + `{"type":"string"}` + strings.Repeat("}", 3000)
	ins := []Input{
		{Name: "format of unknown type", Body: chat(`,"response_format":{"type":"yaml"}`), Code: invalid, Status: 400, Says: "yaml"},
		{Name: "format is a string", Body: chat(`,"response_format":"json"`), Code: invalid, Status: 400, Says: "response_format"},
		{Name: "schema is missing", Body: chat(`,"response_format":{"type":"json_schema","json_schema":{"name":"s"}}`), Code: invalid, Status: 400, Says: "schema"},
		{Name: "schema is a number", Body: schema("5"), Code: invalid, Status: 400, Says: "Schema"},
		{Name: "schema refers to nothing", Body: schema(`{"$ref":"#/$defs/none"}`), Code: invalid, Status: 400, Says: "none"},
		{Name: "schema refers to the network", Body: schema(`{"$ref":"http://example.org/s.json"}`), Code: invalid, Status: 400, Says: "ref"},
		{Name: "schema refers to itself at once", Body: schema(`{"$ref":"#"}`), Code: invalid, Status: 400},
		{Name: "schema is a circle", Body: schema(`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`), Code: invalid, Status: 400},
		{Name: "schema 3,000 deep", Body: schema(deep), Code: invalid, Status: 400},
		{Name: "schema repeats a billion times", Body: schema(`{"type":"array","items":{"type":"string"},"minItems":1000000000}`), Code: invalid, Status: 400},
		{Name: "schema with a wild pattern", Body: schema(`{"type":"string","pattern":"(a+)+$"}`), Code: invalid, Status: 400},
		{Name: "grammar without root", Body: grammar(`"a ::= \"x\""`), Code: invalid, Status: 400, Says: "root"},
		{Name: "grammar that is none", Body: grammar(`"root ::= ("`), Code: invalid, Status: 400},
		{Name: "grammar is a number", Body: grammar(`5`), Code: invalid, Status: 400, Says: "grammar", Dead: true},
		{Name: "grammar that refers to nothing", Body: grammar(`"root ::= nothing"`), Code: invalid, Status: 400, Says: "nothing"},
		{Name: "grammar that begins with itself", Body: grammar(`"root ::= root \"a\""`), Code: invalid, Status: 400},
		{Name: "grammar bomb by repetition", Body: grammar(`"root ::= ((((\"a\"{999}){999}){999}){999}){999}"`), Code: invalid, Status: 400},
		{Name: "grammar bomb by rules", Body: grammar(`"` + bomb() + `"`), Code: invalid, Status: 400},
		{Name: "grammar 50,000 deep", Body: grammar(`"root ::= ` + strings.Repeat("(", 50_000) + strings.Repeat(")", 50_000) + `"`), Code: invalid, Status: 400},
	}
	if llama {
		ins = append(ins, Input{Name: "grammar that doubles a rule forty times", Body: grammar(`"` + strings.ReplaceAll(bomb(), "*", "") + `"`), Code: Answered, Status: 200})
	} else {
		ins = append(ins,
			Input{Name: "constraint on an engine that cannot", Body: chat(`,"response_format":{"type":"json_object"}`), Code: invalid, Status: 400, Says: "llama"},
			Input{Name: "grammar on an engine that cannot", Body: grammar(`"root ::= \"a\""`), Code: invalid, Status: 400, Says: "llama"},
		)
	}
	return ins
}

// bomb doubles a rule forty times.
func bomb() string {
	var b strings.Builder
	b.WriteString(`root ::= r0\n`)
	for i := range 40 {
		fmt.Fprintf(&b, `r%d ::= r%d* r%d*\n`, i, i+1, i+1)
	}
	b.WriteString(`r40 ::= \"a\"*\n`)
	return b.String()
}
