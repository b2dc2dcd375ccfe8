package explain

import (
	"fmt"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// plant is one case: turns of a session of its own, the last of which is explained.
type plant struct {
	cause schemas.MissCause
	turns []turn
	// message is the index that must be named; where the text does not decide, none.
	message int
	byte    int    // in that message's content; -1 where the exact byte is not meant
	rule    string // by which the block went
}

// none: the text does not decide, so no message is named.
const none = -2

// turn is one request. Messages of earlier turns and their answers stand before msgs
// unless whole is set.
type turn struct {
	session string // of another session, which takes the memory; "" for the case's own
	whole   func(before []message) []message
	msgs    []message
	tools   []string
	kwargs  string
	force   string // text of the answer
	stop    string // stop string
	raw     bool   // published without weir's client, which takes no such reference
	max     int64  // tokens to generate; 4
}

type message map[string]any

func say(role, text string) message { return message{"role": role, "content": text} }

// long is text of about n tokens of the default model, which has two or three
// characters each; seed makes it differ from others.
func long(seed string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < 2*n; i++ {
		fmt.Fprintf(&b, "%s line %d of the log says that all is well. ", seed, i)
	}
	return b.String()
}

const readFile = `{"type":"function","function":{"name":"read_file","description":"Read a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}`

const writeFile = `{"type":"function","function":{"name":"write_file","description":"Write a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}`

const callReadFile = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.go\"}}\n</tool_call>"

// opening is a system message and a question.
func opening(seed string) []message {
	return []message{say("system", "You are careful. "+long(seed+" system", 120)), say("user", "Question one. "+long(seed, 120))}
}

// change is a whole list in which one message says something else from a byte on.
func change(index, at int, text string) func([]message) []message {
	return func(before []message) []message {
		out := append([]message(nil), before...)
		old, ok := out[index]["content"].(string)
		if !ok || len(old) < at {
			old = strings.Repeat(" ", at) // the planted answer is not there: the case will fail
		}
		out[index] = message{}
		for k, v := range before[index] {
			out[index][k] = v
		}
		out[index]["content"] = old[:at] + text
		return append(out, say("user", "Go on."))
	}
}

// textCases are those that the prompt's text decides.
func textCases() []plant {
	next := []message{say("user", "Go on with question two.")}
	history := []turn{
		{msgs: opening("h")},
		{msgs: []message{say("user", "Two. "+long("two", 150))}},
		{msgs: []message{say("user", "Three. "+long("three", 150))}},
		{msgs: []message{say("user", "Four. "+long("four", 150))}},
	}
	called := append(opening("tool"), nil...)
	result := message{"role": "tool", "tool_call_id": "c1", "content": long("file", 300)}
	return []plant{
		{cause: schemas.MissFirst, message: none, turns: []turn{{msgs: opening("f")}}},
		{cause: schemas.MissNewText, message: 3, byte: 0, turns: []turn{{msgs: opening("n")}, {msgs: next}}},
		{cause: schemas.MissSystem, message: 0, byte: 40, turns: []turn{{msgs: opening("s")}, {whole: change(0, 40, "X and from here on something else.")}}},
		{cause: schemas.MissTools, message: -1, byte: -1, turns: []turn{{msgs: opening("t"), tools: []string{readFile}}, {msgs: next, tools: []string{readFile, writeFile}}}},
		{cause: schemas.MissTemplate, message: -1, byte: -1, turns: []turn{{msgs: opening("k")}, {msgs: next, kwargs: `{"enable_thinking":false}`}}},
		{cause: schemas.MissRewrite, message: 1, byte: 60, turns: []turn{{msgs: opening("r")}, {msgs: next}, {whole: change(1, 60, "X, which was edited. "+long("r", 90))}}},
		{cause: schemas.MissCompaction, message: 1, byte: -1, turns: append(append([]turn(nil), history...), turn{whole: func(before []message) []message {
			return []message{before[0], say("user", "Summary of what was said before: all is well."), say("assistant", "Understood."), say("user", "Go on.")}
		}})},
		{cause: schemas.MissPruned, message: 3, byte: -1, turns: []turn{
			{msgs: called, tools: []string{readFile}, force: callReadFile},
			{msgs: []message{result}, tools: []string{readFile}},
			{tools: []string{readFile}, whole: func(before []message) []message {
				out := append([]message(nil), before...)
				out[3] = message{"role": "tool", "tool_call_id": "c1", "content": "[removed]"}
				return append(out, say("user", "Go on."))
			}},
		}},
		{cause: schemas.MissReasoning, message: 2, byte: -1, turns: []turn{
			{msgs: opening("t"), force: "<think>" + long("thought", 150) + "</think>\n\nThe answer."},
			{msgs: next},
		}},
		// What was generated behind the stop string is in no message.
		{cause: schemas.MissReworded, message: 2, byte: -1, turns: []turn{
			{msgs: opening("w"), force: long("word", 60) + " STOP and so on", stop: " STOP and so on"},
			{msgs: next},
		}},
	}
}

// mediaCases need a model with vision. The image's reference does not say how large
// it is, so what the model sees of it is not fully known.
func mediaCases(ref string) []plant {
	image := message{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": long("image", 120)}, map[string]any{"type": "image_url", "image_url": map[string]any{"url": ref}},
	}}
	return []plant{{cause: schemas.MissNotCached, message: none, turns: []turn{
		{msgs: []message{image}, raw: true}, {msgs: []message{say("user", "Go on.")}, raw: true},
	}}}
}

// memoryCases are those that a small memory decides. It holds seven blocks of the
// default model: four of the first session and four of the other one are one too many,
// so the last of the first session's goes.
func memoryCases() []plant {
	return []plant{
		{cause: schemas.MissEvicted, message: 1, byte: -1, rule: "waiting", turns: []turn{
			{msgs: opening("e")}, {session: "flood", msgs: []message{say("user", long("flood", 230))}}, {msgs: []message{say("user", "Go on.")}},
		}},
		{cause: schemas.MissNotKept, message: 0, byte: -1, turns: []turn{
			{msgs: []message{say("user", long("big", 1500))}}, {msgs: []message{say("user", "Go on.")}},
		}},
	}
}
