package chat

// thinkTags open and close the reasoning of most families.
var thinkTags = []marker{{kind: markOpen, text: "<think>"}, {kind: markClose, text: "</think>"}}

// syntaxOf is how a family writes, nil for an unknown one. The formats are those of
// the templates that the models were published with.
func syntaxOf(f Family) *syntax {
	switch f {
	case Hermes, Coder:
		return hermes()
	case Llama3:
		return llama3()
	case Kimi:
		return kimi()
	case GLM:
		return glm()
	case DeepSeek:
		return deepSeek()
	case Mistral:
		return mistral()
	}
	return nil
}

// hermes: a JSON object, or what Qwen3-Coder writes:
//
//	<tool_call>
//	{"name": "f", "arguments": {"x": 1}}
//	</tool_call>
//
//	<tool_call>
//	<function=f>
//	<parameter=x>
//	1
//	</parameter>
//	</function>
//	</tool_call>
//
// The outer markers of the second form may be missing.
func hermes() *syntax {
	const (
		first = iota + 1
		object
		after
		function
		parameters
		key
		value
		arguments
		closing
	)
	steps := make([]step, closing+1)
	steps[first] = step{words: []lead{{"{", object, doFeed}, {"[", first, 0}, {"<function=", function, 0}, {"```json", first, 0}}}
	steps[object] = step{kind: stepObject, next: after}
	steps[after] = step{end: true, words: []lead{
		{"</tool_call>", 0, 0},
		{"{", object, doFeed},
		{",", first, 0},
		{"]", after, 0},
		{"}", after, 0},
		{"<function=", function, 0},
		{"```", after, 0},
	}}
	steps[function] = step{kind: stepName, words: []lead{{">", parameters, doName}, {"\n", parameters, doName}}}
	steps[parameters] = step{words: []lead{
		{"<parameter=", key, doAnnounce},
		{"</function>", after, doAnnounce | doFinish},
		{"</tool_call>", 0, doAnnounce | doFinish},
		{"{", arguments, doAnnounce | doFeed},
	}}
	steps[key] = step{kind: stepKey, words: []lead{{">", value, doKey}, {"\n", value, doKey}}}
	steps[value] = step{kind: stepValue, trim: true, words: []lead{
		{"\n</parameter>", parameters, doValue},
		{"</parameter>", parameters, doValue},
		{"\n<parameter=", key, doValue},
		{"\n</function>", after, doValue | doFinish},
		{"\n</tool_call>", 0, doValue | doFinish},
	}}
	steps[arguments] = step{kind: stepArguments, next: closing}
	steps[closing] = step{end: true, words: []lead{{"</function>", after, 0}, {"</tool_call>", 0, 0}}}
	return &syntax{steps: steps, markers: append([]marker{
		{kind: markCall, text: "<tool_call>", to: first},
		{kind: markCall, text: "<function=", to: function},
		{kind: markEnd, text: "</tool_call>"},
		{kind: markEnd, text: "</function>"},
	}, thinkTags...)}
}

// llama3: JSON objects, separated by semicolons or white space, either as the whole
// answer or behind a marker:
//
//	<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}
func llama3() *syntax {
	const (
		first = iota + 1
		object
		after
	)
	steps := make([]step, after+1)
	steps[first] = step{words: []lead{{"{", object, doFeed}, {"[", first, 0}}}
	steps[object] = step{kind: stepObject, next: after}
	steps[after] = step{end: true, words: []lead{{";", first, 0}, {",", first, 0}, {"{", object, doFeed}, {"]", after, 0}, {"}", after, 0}}}
	return &syntax{steps: steps, bare: object, markers: append([]marker{{kind: markCall, text: "<|python_tag|>", to: first}}, thinkTags...)}
}

// kimi: the id holds the name and must come back as it was:
//
//	<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|><|tool_calls_section_end|>
func kimi() *syntax {
	const (
		section = iota + 1
		name
		arguments
		object
		closing
		more
	)
	const begin, end = "<|tool_call_begin|>", "<|tool_call_end|>"
	ends := []lead{{"<|tool_calls_section_end|>", 0, 0}, {"<|tool_call_section_end|>", 0, 0}}
	steps := make([]step, more+1)
	steps[section] = step{end: true, words: append([]lead{{begin, name, 0}}, ends...)}
	steps[name] = step{kind: stepName, words: []lead{
		{"<|tool_call_argument_begin|>", arguments, doName}, {end, more, doName | doAnnounce | doFinish},
	}}
	steps[arguments] = step{words: []lead{{"{", object, doAnnounce | doFeed}, {end, more, doAnnounce | doFinish}}}
	steps[object] = step{kind: stepArguments, next: closing}
	steps[closing] = step{end: true, words: append([]lead{{end, more, 0}}, ends...)}
	steps[more] = step{end: true, words: append([]lead{{begin, name, 0}}, ends...)}
	return &syntax{kimi: true, steps: steps, markers: append([]marker{
		{kind: markCall, text: "<|tool_calls_section_begin|>", to: section},
		{kind: markCall, text: "<|tool_call_section_begin|>", to: section},
		{kind: markCall, text: begin, to: name},
		{kind: markEnd, text: end},
		{kind: markEnd, text: "<|tool_calls_section_end|>"},
	}, thinkTags...)}
}

// glm: keys and values between markers, with or without line feeds:
//
//	<tool_call>f
//	<arg_key>x</arg_key>
//	<arg_value>1</arg_value>
//	</tool_call>
func glm() *syntax {
	const (
		name = iota + 1
		pairs
		key
		between
		value
	)
	const end = "</tool_call>"
	steps := make([]step, value+1)
	steps[name] = step{kind: stepName, words: []lead{
		{"\n", pairs, doName}, {"<arg_key>", key, doName | doAnnounce}, {end, 0, doName | doAnnounce | doFinish},
	}}
	steps[pairs] = step{words: []lead{{"<arg_key>", key, doAnnounce}, {end, 0, doAnnounce | doFinish}, {"</arg_value>", pairs, 0}}}
	steps[key] = step{kind: stepKey, words: []lead{{"</arg_key>", between, doKey}, {"<arg_key>", key, 0}}}
	steps[between] = step{words: []lead{{"<arg_value>", value, 0}, {"</arg_key>", between, 0}}}
	steps[value] = step{kind: stepValue, words: []lead{{"</arg_value>", pairs, doValue}}}
	return &syntax{steps: steps, markers: append([]marker{{kind: markCall, text: "<tool_call>", to: name}, {kind: markEnd, text: end}}, thinkTags...)}
}

// deepSeek: V3 and R1 write a type and a fence, V3.1 does not, later ones write
// parameters one by one:
//
//	<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//	```json
//	{"x": 1}
//	```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
//	<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
//	<｜DSML｜function_calls>
//	<｜DSML｜invoke name="f">
//	<｜DSML｜parameter name="x" string="false">1</｜DSML｜parameter>
//	</｜DSML｜invoke>
//	</｜DSML｜function_calls>
func deepSeek() *syntax {
	const (
		section = iota + 1
		kind
		name
		fence
		arguments
		object
		closing
		more
		dsml
		invoke
		parameters
		key
		value
	)
	const (
		sectionBegin, sectionEnd = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
		begin, sep, end          = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
	)
	steps := make([]step, value+1)
	steps[section] = step{end: true, words: []lead{{begin, kind, 0}, {sectionEnd, 0, 0}}}
	steps[kind] = step{kind: stepName, words: []lead{{sep, name, doName}}}
	steps[name] = step{kind: stepName, words: []lead{
		{"\n", fence, doName},
		{"{", object, doName | doAnnounce | doFeed},
		{"```json", arguments, doName},
		{end, more, doName | doAnnounce | doFinish},
	}}
	steps[fence] = step{words: []lead{
		{"```", fence, 0}, {"json", fence, 0}, {"{", object, doAnnounce | doFeed}, {end, more, doAnnounce | doFinish},
	}}
	steps[arguments] = step{words: []lead{
		{"{", object, doAnnounce | doFeed}, {"```", arguments, 0}, {end, more, doAnnounce | doFinish},
	}}
	steps[object] = step{kind: stepArguments, next: closing}
	steps[closing] = step{end: true, words: []lead{{"```", closing, 0}, {end, more, 0}, {sectionEnd, 0, 0}, {begin, kind, 0}}}
	steps[more] = step{end: true, words: []lead{{begin, kind, 0}, {sectionEnd, 0, 0}}}
	steps[dsml] = step{end: true, words: []lead{
		{"<｜DSML｜invoke name=\"", invoke, 0},
		{"</｜DSML｜function_calls>", 0, 0},
		{"</｜DSML｜tool_calls>", 0, 0},
	}}
	steps[invoke] = step{kind: stepName, words: []lead{{"\">", parameters, doName}}}
	steps[parameters] = step{words: []lead{
		{"<｜DSML｜parameter name=\"", key, doAnnounce},
		{"</｜DSML｜invoke>", dsml, doAnnounce | doFinish},
	}}
	steps[key] = step{kind: stepKey, words: []lead{
		{"\" string=\"true\">", value, doKey | doString},
		{"\" string=\"false\">", value, doKey},
		{"\">", value, doKey},
	}}
	steps[value] = step{kind: stepValue, words: []lead{{"</｜DSML｜parameter>", parameters, doValue}}}
	return &syntax{steps: steps, markers: append([]marker{
		{kind: markCall, text: sectionBegin, to: section},
		{kind: markCall, text: begin, to: kind},
		{kind: markCall, text: "<｜DSML｜function_calls>", to: dsml},
		{kind: markCall, text: "<｜DSML｜tool_calls>", to: dsml},
		{kind: markEnd, text: end},
		{kind: markEnd, text: sectionEnd},
	}, thinkTags...)}
}

// mistral: a list of JSON objects, or a name before the arguments:
//
//	[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}, "id": "abcdefghi"}]
//	[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"x": 1}
//
// [ARGS] may be missing, and so may the id.
func mistral() *syntax {
	const (
		first = iota + 1
		list
		object
		after
		name
		id
		arguments
		value
	)
	steps := make([]step, value+1)
	steps[first] = step{other: name, words: []lead{{"[", list, 0}, {"{", object, doFeed}}}
	steps[list] = step{words: []lead{{"{", object, doFeed}, {"]", after, 0}}}
	steps[object] = step{kind: stepObject, next: after}
	steps[after] = step{end: true, words: []lead{{",", list, 0}, {"{", object, doFeed}, {"]", after, 0}, {"[/TOOL_CALLS]", 0, 0}}}
	steps[name] = step{kind: stepName, words: []lead{
		{"[ARGS]", arguments, doName}, {"[CALL_ID]", id, doName}, {"{", value, doName | doAnnounce | doFeed},
	}}
	steps[id] = step{kind: stepName, words: []lead{{"[ARGS]", arguments, doID}, {"{", value, doID | doAnnounce | doFeed}}}
	steps[arguments] = step{words: []lead{{"{", value, doAnnounce | doFeed}}}
	steps[value] = step{kind: stepArguments, next: after}
	return &syntax{steps: steps, markers: append([]marker{
		{kind: markOpen, text: "[THINK]"},
		{kind: markClose, text: "[/THINK]"},
		{kind: markCall, text: "[TOOL_CALLS]", to: first},
		{kind: markEnd, text: "[/TOOL_CALLS]"},
	}, thinkTags...)}
}
